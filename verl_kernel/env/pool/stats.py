# SPDX-License-Identifier: Apache-2.0
"""What a pool knows about itself: its judges, its queue, its counts, its pace."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import ClassVar

from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalError, EvalResult, EvalStatus, Record

# A verdict as a pool holds it: beside the judge's result, how the pool came by it.


@dataclass(frozen=True)
class Outcome:
    """What all who asked for one evaluation get, before it carries their name for the candidate."""

    result: EvalResult
    """As the judge made it."""
    attempts: int
    queue_seconds: float
    """From the request to its first judge."""
    env: dict[str, str] = field(default_factory=dict)
    """What the pool adds to the result's `env`."""

    def answer(self, request: EvalRequest, lost: int) -> EvalResult:
        """The answer to one request; `lost` attempts at it went down with another pool."""
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
    """The result of an evaluation whose every attempt failed for reasons of ours."""
    error = EvalError(stage="pool", type=type(failure).__name__, message=str(failure)[:2000])
    return EvalResult(
        task_id=request.task.task_id, task_hash=request.task.text_hash, kernel=request.kernel,
        status=EvalStatus.INFRA_ERROR, error=error, attempts=attempts,
    )  # fmt: skip


class JudgeStats(Record):
    """One judge."""

    number: int
    state: str
    """`free`, `busy`, `down` (being started again), `quarantined`, `draining` (finishing its last) or `drained`."""
    node: str = ""
    pid: int | None = None
    """Process of the judge; None before its first start and when its node is lost."""
    model: str = ""
    """GPU model, and the group of `kernelgym.judge_resources` where there are several."""


class PrefilterStats(Record):
    """The workers without a GPU in front of a pool; counts are since its start."""

    judges: tuple[JudgeStats, ...]
    passed: int
    """Candidates that went on to a GPU because nothing was found."""
    refused: int
    """Candidates that no GPU saw."""
    undecided: int
    """Candidates that went on to a GPU because a CPU could not judge them."""
    gpu_seconds_saved: float
    """Estimate: `refused` times the mean seconds for which an evaluation of this pool had its GPU."""


class PoolStats(Record):
    """A pool at one moment; counts are since its start."""

    RECENT_S: ClassVar[float] = 60.0
    """Window of `recent_per_second`."""

    judges: tuple[JudgeStats, ...]
    queue: int
    """Requests that wait for a judge."""
    held_back: int
    """Requests that wait for a place in the queue."""
    evaluations: int
    """Runs of a judge, second tries included."""
    remembered: int
    """Requests answered by an evaluation that another request had asked for."""
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
    """None where there is none (`kernelgym.prefilter`)."""

    @property
    def busy(self) -> int:
        """Judges at work."""
        return sum(judge.state in ("busy", "draining") for judge in self.judges)

    @property
    def alive(self) -> int:
        """Judges whose process is up."""
        return sum(judge.state != "down" for judge in self.judges)

    @property
    def drained(self) -> int:
        """Judges that get nothing new, whether they are still at work or not."""
        return sum(judge.state in ("draining", "drained") for judge in self.judges)

    @property
    def quarantined(self) -> int:
        """Judges taken out of rotation for failing."""
        return sum(judge.state == "quarantined" for judge in self.judges)


class Tally:
    """Counts of a pool."""

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
        """Everything at this moment."""
        self._forget_old()
        uptime = max(time.monotonic() - self._started, 1e-9)
        return PoolStats(
            judges=judges, queue=queue, held_back=held_back, evaluations=self.evaluations, remembered=self.remembered,
            retries=self.retries, infra_errors=self.infra_errors, quarantines=self.quarantines,
            statuses=dict(self.statuses), per_second=sum(self.statuses.values()) / uptime,
            recent_per_second=len(self._recent) / min(uptime, PoolStats.RECENT_S), uptime_s=uptime,
            prefilter=prefilter,
        )  # fmt: skip

    def _forget_old(self) -> None:
        while self._recent and self._recent[0] < time.monotonic() - PoolStats.RECENT_S:
            self._recent.popleft()
