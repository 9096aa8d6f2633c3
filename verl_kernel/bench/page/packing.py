# SPDX-License-Identifier: Apache-2.0
"""Data inside a page: compressed JSON in letters that no parser of HTML takes for markup."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any


def packed(data: Any) -> str:
    """Gzip of the data's JSON, in base64: letters, digits, `+`, `/` and `=` only."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode("ascii"), mtime=0)).decode("ascii")


def cut_middle(text: str, limit: int) -> tuple[str, int]:
    """A text of at most `limit` characters with its middle left out, and how many characters those are."""
    left_out = len(text) - limit
    if left_out <= 0:
        return text, 0
    head = limit - limit // 3
    return f"{text[:head]}\n[... {left_out:,} characters left out ...]\n{text[head + left_out :]}", left_out
