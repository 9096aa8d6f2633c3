# SPDX-License-Identifier: Apache-2.0
"""The quickstart's byte-level BPE tokenizer: its tokens are pieces of lines, which generated code repeats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from transformers import PreTrainedTokenizerFast

from verl_kernel.quickstart.tasks import NUMBERS
from verl_kernel.world import tokenizer

_PIECE = r"\d+(?:\.\d+)?(?:e\d+)?|\n *|[^\d\n,]+,?|,"
"""An indent, a number, or a piece of a line up to a comma."""


def train_tokenizer(texts: Iterable[str], size: int, numbers: Sequence[str] = NUMBERS) -> PreTrainedTokenizerFast:
    """Train a tokenizer of at most `size` tokens; the same texts give the same tokenizer.

    `numbers` are added once per text, so that each becomes one token: a constant is copied in one step.
    """
    texts = list(texts)
    return tokenizer.train_tokenizer([*texts, *[" ".join(numbers)] * len(texts)], size, _PIECE)
