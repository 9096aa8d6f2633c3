# SPDX-License-Identifier: Apache-2.0
import pytest

from verl_kernel.env import Task

TEXT = '''import torch
class Model(torch.nn.Module):
    """A # in a string stays."""
    def forward(self, x):
        return x + 1  # one
def get_inputs():
    return [torch.rand(2, 3)]
def get_init_inputs():
    return []
'''


@pytest.mark.parametrize(
    "same",
    [
        TEXT.replace("  # one", ""),
        TEXT.replace("# one", "# two, ü"),
        "# above\n\n" + TEXT.replace("\n", "\r\n"),
        TEXT.replace("2, 3", "2,3").replace("\n    def", "\n\n    def"),
        TEXT.rstrip(),
    ],
)
def test_comments_and_white_space_do_not_change_the_hash(same):
    assert Task(same).text_hash == Task(TEXT).text_hash
    assert Task(same).fingerprint != Task(TEXT).fingerprint


@pytest.mark.parametrize("other", [TEXT.replace("+ 1", "+ 2"), TEXT.replace("A # in", "A # on")])
def test_code_does(other):
    assert Task(other).text_hash != Task(TEXT).text_hash
