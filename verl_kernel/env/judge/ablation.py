# SPDX-License-Identifier: Apache-2.0
"""Forwards in which launches leave something out: what makes no difference is no compute of the candidate's.

Left out is first what the kernels compute, while what they move and their constants stay, so that torch's result comes
out right, copied or multiplied by a kernel's one. Where it does, one more forward tells a decoy (right without the
moves too) from a candidate whose kernels only move. A task that asks for nothing but moving has all left out at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verl_kernel.env.ipc.messages import LeftOut
from verl_kernel.env.judge.runner_client import Stop
from verl_kernel.env.judge.trials import Bench
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.tamper.trace_checks import heaviest

_EVERYTHING: LeftOut = {}
_COMPUTED: LeftOut = {"kept": ["moves", "constant"]}
_MOVED_TOO: LeftOut = {"kept": ["constant"]}
_MOST_GROUPS = 4
"""Launches, or kernels if there are more launches, that are asked for one by one."""
_PATIENCE, _GRACE_S = 5.0, 2.0
"""A forward without what its kernels compute may run into a loop without end: it gets this many times the time of an
average forward, and this much on top."""


class Ablation:
    """The ablated forwards of one evaluation.

    Args:
        bench: the loaded candidate; what makes no difference is noted in its `idle`.
        secret: the evaluation's secret.
        number: of the first ablated trial; no other trial has it or a later one.
        revive: loads the candidate into another runner, if this one ended.
    """

    def __init__(self, bench: Bench, secret: bytes, number: int, revive: Callable[[], None]) -> None:
        self._bench, self._secret, self._number, self._revive = bench, secret, number, revive
        self._is_first_runner = True

    def finds_decoy(self) -> bool:
        """Whether the output is right although the kernels contribute nothing."""
        if self._bench.moves_count:
            return self._is_right(_EVERYTHING)
        if not self._is_right(_COMPUTED):
            return False
        if self._is_right(_MOVED_TOO):
            return True
        self._bench.idle.update(range(len(self._launches())))
        return False

    def find_idle(self) -> None:
        """Note the launches without which the output is right; one launch alone has been asked for already."""
        bench = self._bench
        kept = _EVERYTHING if bench.moves_count else _COMPUTED
        if bench.idle or not self._is_first_runner:  # a new runner has not seen what its launches store
            return
        for numbers in heaviest(bench.traces[-1], bench.dialogue.file, bench.moves_count, _MOST_GROUPS):
            if self._is_right({**kept, "only": numbers}):
                bench.idle.update(numbers)
            if not self._is_first_runner:
                return

    def _launches(self) -> Sequence[object]:
        return [event for event in self._bench.traces[-1] if event.kind == "launch"]

    def _is_right(self, left_out: LeftOut) -> bool:
        bench, left = self._bench, self._bench.seconds_left
        average = (bench.seconds_granted - left) / max(1, len(bench.traces))
        bench.seconds_left = min(left, _GRACE_S + _PATIENCE * average)
        number, self._number = self._number, self._number + 1
        try:
            return bench.trial(self._secret, number, suppress=left_out).ok
        except Stop as stop:  # without its kernels it fails, so they matter
            if stop.status is EvalStatus.HACKING:
                raise
            if not bench.dialogue.runner.alive:
                self._is_first_runner = False
                self._revive()
            return False
        finally:
            bench.seconds_left = left
