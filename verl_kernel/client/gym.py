# SPDX-License-Identifier: Apache-2.0
"""The interface that all judges share."""

from __future__ import annotations

from typing import Protocol

from verl_kernel.env import EvalResult, Task


class Gym(Protocol):
    """What judges: a pool, or a service."""

    async def evaluate(
        self, task: Task, source: str, *, kernel: str = "", validate: bool = False, step: int | None = None
    ) -> EvalResult:
        """Judge one candidate."""
        ...
