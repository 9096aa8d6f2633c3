# SPDX-License-Identifier: Apache-2.0
"""The time to make one candidate's code, which is not the candidate's own and has a bound of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from verl_kernel.env.compilation.outcome import Refusal
from verl_kernel.env.compilation.targets import COMPILE_S
from verl_kernel.env.judge.processes.own_time import WALL_FACTOR

LATE = "CompileTimeout"
_ADVICE = "code is shorter where a program has fewer elements for each of its warps, or unrolls less"


class CodeTime:
    """The time of one candidate, all of its runners together; what waits for code sees it as `own_time.Waits`.

    Args:
        granted_s: own time of the processes that make code; `backstop_s` of it on the wall clock.
    """

    def __init__(self, granted_s: float) -> None:
        self._granted_s, self._spent_s, self._steps = granted_s, 0.0, 0
        self._waited_ns, self._begun_ns = 0, 0

    def waited_ns(self) -> int:
        """How long code was made so far, on the wall clock."""
        begun = self._begun_ns  # first: if it ends in between, the sum is too large for a moment, never too small
        return self._waited_ns + (time.monotonic_ns() - begun if begun else 0)

    def close(self) -> None:
        """Do nothing: there is nothing to give back."""

    @property
    def left_s(self) -> float:
        """Own time that the next process has; 0 if there is none."""
        left_s = self._granted_s - max(self._spent_s, self.waited_ns() / 1e9 / WALL_FACTOR)
        return max(0.0, min(COMPILE_S, left_s))

    @contextmanager
    def making(self) -> Iterator[None]:
        """Code is made inside; what this thread computes for it is charged."""
        self._steps += 1
        self._begun_ns, before = time.monotonic_ns(), time.thread_time()
        try:
            yield
        finally:
            self.charge(time.thread_time() - before)
            self._waited_ns += time.monotonic_ns() - self._begun_ns
            self._begun_ns = 0

    def charge(self, seconds: float) -> None:
        """A process took so much of its own time."""
        self._spent_s += seconds

    def late(self, granted_s: float) -> Refusal:
        """Why there is no code of a launch for which this much time was left."""
        if granted_s >= COMPILE_S:
            return Refusal(LATE, f"making its code takes more than {COMPILE_S:g} s: {_ADVICE}", 0)
        text = (
            f"making code for all launches of the program takes more than {self._granted_s:g} s, after {self._steps} "
            f"steps: launch fewer kernels and configurations; {_ADVICE}"
        )
        return Refusal(LATE, text, 0)
