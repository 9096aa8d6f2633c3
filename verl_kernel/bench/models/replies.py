# SPDX-License-Identifier: Apache-2.0
"""The body of a chat completion, read without trust: what is not there or of another type counts as missing."""

from __future__ import annotations

import json
from typing import Any

from verl_kernel.bench.models.answers import Answer


def parse_reply(body: bytes) -> Answer:
    """The answer that a body holds; `malformed` where it holds none."""
    try:
        reply = json.loads(body)
        choice = reply["choices"][0]
        text = choice["message"].get("content")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return Answer(failure="malformed")
    is_cut = choice.get("finish_reason") == "length"
    is_text = isinstance(text, str) and bool(text)
    return Answer(
        # JSON may hold half of a surrogate pair, which no file of text can.
        text=str(text).encode(errors="replace").decode() if is_text else "",
        is_cut=is_cut,
        failure=None if is_text else "too_long" if is_cut else "malformed",
        prompt_tokens=_count(reply, "prompt_tokens"),
        completion_tokens=_count(reply, "completion_tokens"),
    )


def _count(reply: dict[str, Any], key: str) -> int | None:
    usage = reply.get("usage")
    value = usage.get(key) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None
