# SPDX-License-Identifier: Apache-2.0
"""Packs data into a page: compressed JSON in letters that no HTML parser takes for markup."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any


def packed(data: Any) -> str:
    """Return the data as gzipped JSON in base64: only letters, digits, `+`, `/` and `=`."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode("ascii"), mtime=0)).decode("ascii")


def cut_middle(text: str, limit: int) -> tuple[str, int]:
    """Cut the middle out of a text so that `limit` characters remain; return the text and the number cut."""
    left_out = len(text) - limit
    if left_out <= 0:
        return text, 0
    head = limit - limit // 3
    return f"{text[:head]}\n[... {left_out:,} characters left out ...]\n{text[head + left_out :]}", left_out
