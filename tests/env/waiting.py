# SPDX-License-Identifier: Apache-2.0
"""Waiting for conditions, never for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")


def until(condition: Callable[[], Seen], limit_s: float = 120.0) -> Seen:
    """What `condition` returns once that is true; fails the test where it never is."""
    end = time.monotonic() + limit_s
    while not (seen := condition()):
        assert time.monotonic() < end, f"still {seen!r} after {limit_s:.0f} s"
        time.sleep(0.02)
    return seen


async def soon(condition: Callable[[], Seen], limit_s: float = 120.0) -> Seen:
    """`until`, while the event loop goes on."""
    return await asyncio.to_thread(until, condition, limit_s)
