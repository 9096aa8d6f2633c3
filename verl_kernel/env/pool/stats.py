# SPDX-License-Identifier: Apache-2.0
"""The statistics of a pool: judges, queue, counts and results per second."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import ClassVar

from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalError, EvalResult, EvalStatus, Record

# A verdict as a pool stores it: the judge's result, with the attempts and the queue time that it took.


@dataclass(frozen=True)
class PoolOutcome:
    """The outcome of one evaluation, which all its callers share; `answer` adds each caller's own names."""

    result: EvalResult
    """The judge's result, unchanged."""
    attempts: int
    queue_seconds: float
    """Seconds from the request until the first judge took it."""
    env: dict[str, str] = field(default_factory=dict)
    """Entries that the pool adds to the result's `env`."""

    def answer(self, request: EvalRequest, lost: int) -> EvalResult:
        """Return the result for one request; `lost` earlier attempts ended when another router died."""
        return self.result.model_copy(
            update={
                "task_id": request.task.task_id,
                "task_hash": request.task.text_hash,
                "kernel": request.kernel,
                "attempts": self.attempts + lost,
                "queue_seconds": self.queue_seconds,
                "env": {**self.result.env, **self.env},
            }
        )


def not_judged(request: EvalRequest, failure: Exception, attempts: int) -> EvalResult:
    """Return the `infra_error` of a request whose attempts have all failed; `failure` is the latest."""
    error = EvalError(stage="pool", type=type(failure).__name__, message=str(failure)[:2000])
    return EvalResult(
        task_id=request.task.task_id,
        task_hash=request.task.text_hash,
        kernel=request.kernel,
        status=EvalStatus.INFRA_ERROR,
        error=error,
        attempts=attempts,
    )


class JudgeStats(Record):
    """The state of one judge."""

    number: int
    state: str
    """`free`, `busy`, `down` (being restarted), `quarantined`, `draining` (drained, still busy) or `drained`."""
    node: str = ""
    pid: int | None = None
    """Process id of the judge; None before its first start and after its node was lost."""
    model: str = ""
    """GPU model; empty before its first start."""


class PrefilterStats(Record):
    """The state of a pool's prefilter; counts begin at its start."""

    judges: tuple[JudgeStats, ...]
    """Its CPU workers."""
    passed: int
    """Candidates that were correct on a CPU and went on to a GPU."""
    refused: int
    """Candidates that the prefilter refused, so that no GPU ran them."""
    undecided: int
    """Candidates that went on to a GPU because a CPU could not judge them."""
    gpu_seconds_saved: float
    """Estimate: `refused` times the mean GPU seconds of an evaluation in this pool."""


class PoolStats(Record):
    """The state of a pool; counts begin at its start."""

    RECENT_S: ClassVar[float] = 60.0
    """Window of `recent_per_second`, in seconds."""

    judges: tuple[JudgeStats, ...]
    queue: int
    """Requests that wait for a judge."""
    held_back: int
    """Requests that wait for a place in the queue."""
    evaluations: int
    """Evaluations by a judge, repeated attempts included."""
    remembered: int
    """Requests answered by the evaluation of an equal request."""
    retries: int
    infra_errors: int
    quarantines: int
    statuses: dict[str, int]
    """Results by status."""
    per_second: float
    """Results per second since the start."""
    recent_per_second: float
    """Results per second over the last minute."""
    uptime_s: float
    prefilter: PrefilterStats | None = None
    """None if the pool has no prefilter (`kernelgym.prefilter`)."""

    @property
    def busy(self) -> int:
        """Judges that evaluate a candidate."""
        return sum(judge.state in ("busy", "draining") for judge in self.judges)

    @property
    def alive(self) -> int:
        """Judges whose process runs."""
        return sum(judge.state != "down" for judge in self.judges)

    @property
    def drained(self) -> int:
        """Judges that get no new work, whether they are still busy or not."""
        return sum(judge.state in ("draining", "drained") for judge in self.judges)

    @property
    def quarantined(self) -> int:
        """Judges in quarantine because they kept failing."""
        return sum(judge.state == "quarantined" for judge in self.judges)


class PoolCounters:
    """The counters of a pool."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._recent: deque[float] = deque()
        self.evaluations = self.remembered = self.retries = self.infra_errors = self.quarantines = 0
        self.statuses: Counter[str] = Counter()

    def note(self, result: EvalResult) -> None:
        """Count one result."""
        self.statuses[result.status.value] += 1
        self._recent.append(time.monotonic())
        self._forget_old()

    def stats(
        self, judges: tuple[JudgeStats, ...], queue: int, held_back: int, prefilter: PrefilterStats | None
    ) -> PoolStats:
        """Return the counts together with the given judges, queue and prefilter."""
        self._forget_old()
        uptime = max(time.monotonic() - self._started, 1e-9)
        return PoolStats(
            judges=judges,
            queue=queue,
            held_back=held_back,
            evaluations=self.evaluations,
            remembered=self.remembered,
            retries=self.retries,
            infra_errors=self.infra_errors,
            quarantines=self.quarantines,
            statuses=dict(self.statuses),
            per_second=sum(self.statuses.values()) / uptime,
            recent_per_second=len(self._recent) / min(uptime, PoolStats.RECENT_S),
            uptime_s=uptime,
            prefilter=prefilter,
        )

    def _forget_old(self) -> None:
        while self._recent and self._recent[0] < time.monotonic() - PoolStats.RECENT_S:
            self._recent.popleft()
