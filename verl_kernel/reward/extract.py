# SPDX-License-Identifier: Apache-2.0
"""Which part of an answer is the candidate program: the last fenced python block."""

from __future__ import annotations

import re

_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n]*\n(.*?)^[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE)
_PYTHON = frozenset({"", "python", "py", "python3", "triton"})


def extract_code(answer: str) -> str | None:
    """Return the body of the last closed fenced block that is Python or carries no language.

    Returns:
        The program text, or `None` where the answer holds no such block (an unclosed one, cut off by
        the token budget, is not a program either).
    """
    bodies = [body for language, body in _FENCE.findall(answer) if language.lower() in _PYTHON and body.strip()]
    return bodies[-1] if bodies else None
