# SPDX-License-Identifier: Apache-2.0
"""The evaluation in progress as a clock sees it (`clock.base.Session`)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

from verl_kernel.env.clocks.base import Parsed
from verl_kernel.env.ipc.messages import Claims, Offered, Time
from verl_kernel.env.judge.trials import Bench
from verl_kernel.env.reference.trial import Trial
from verl_kernel.env.tamper.trace_checks import OwnWork
from verl_kernel.env.trace import TraceEvent


class BenchSession:
    """Lends a clock what it needs of a bench and nothing else."""

    def __init__(self, bench: Bench, secret: bytes) -> None:
        self._bench, self.reference, self.secret = bench, bench.reference, secret
        self._typical: int | None = None
        if bench.reference.is_sized and bench.works:  # times of different sizes do not compare
            self._typical = _middle([sum(event.bytes for event in work.events) for work in bench.works])
            self.reference = copy.copy(bench.reference)
            self.reference.events = bench.works[self._typical].events

    @property
    def source(self) -> str:
        """The candidate's file."""
        return self._bench.dialogue.file

    @property
    def traces(self) -> Sequence[Sequence[TraceEvent]]:
        """Events of the correctness trials; where sizes change, of the one whose size is the reference's here."""
        traces = self._bench.traces
        return traces if self._typical is None else traces[self._typical : self._typical + 1]

    def work(self, trace: Sequence[TraceEvent]) -> OwnWork:
        """How much of each event is compute of the candidate's own."""
        return self._bench.work(trace)

    def trial(self, number: int) -> Trial:
        """Fresh inputs and what the reference makes of them."""
        with self._bench.guard():
            return self.reference.trial(self.secret, number, varied=False)

    def offer(self, trial: Trial) -> Offered:
        """Inputs into the arena, poison into the outputs."""
        return self._bench.offer(trial)

    def ask(self, request: Time, timeout_s: float) -> Claims:
        """One request to the runner."""
        return self._bench.dialogue.ask(request, timeout_s)

    def accept(self, trial: Trial, form: Claims, values: bool) -> None:
        """Stop unless the output is right."""
        self._bench.accept(trial, form, values)

    def parse(self, read: Callable[[], Parsed]) -> Parsed:
        """Read a part of a reply."""
        return self._bench.dialogue.parse(read)


def _middle(sizes: list[int]) -> int:
    """Place of the median."""
    return sorted(range(len(sizes)), key=sizes.__getitem__)[(len(sizes) - 1) // 2]
