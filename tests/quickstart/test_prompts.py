# SPDX-License-Identifier: Apache-2.0
"""What pages say of the quickstart's model: its parameters."""

from types import SimpleNamespace

from verl_kernel.quickstart.options import Quickstart
from verl_kernel.quickstart.warm_start import build_model


class Tokenizer(SimpleNamespace):
    def __len__(self):
        return Quickstart().vocabulary


def test_the_model_has_0_82_million_parameters():
    tokenizer = Tokenizer(eos_token_id=0, pad_token_id=0)
    assert build_model(Quickstart().warm_start, tokenizer, 0).num_parameters() == 820_288
