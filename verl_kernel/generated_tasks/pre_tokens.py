# SPDX-License-Identifier: Apache-2.0
"""How a text is cut before it becomes tokens, for what counts without a tokenizer."""

from __future__ import annotations

import re

PIECE = r" ?(?:[A-Za-z_][A-Za-z_0-9]*|\d+(?:\.\d+)?(?:e-?\d+)?|`{3}|[=<>!]=|//|[^\sA-Za-z_0-9])|\s+(?!\S)|\s+"
"""An identifier or word, a number or an operator, with the space before it, also at the beginning of a line; or other
white space. So a name is the same token in a line of code and in the comment on it."""


def pieces(text: str) -> list[str]:
    """Cut a text into pieces; each is at least one token."""
    return re.findall(PIECE, text)
