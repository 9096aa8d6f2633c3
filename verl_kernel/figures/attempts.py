# SPDX-License-Identifier: Apache-2.0
"""One judged answer: what figures need of it, what is correct, fast, lost, a decoy or a hack, and which answer is best.

Logs, reports, scores and metrics share one order of kernels (`rank`). `RunPlan` holds the tasks, samples
and turns of a run, so that an answer that never came can count as a failure. The share of the roofline and
NVIDIA's SOL score say how close a kernel is to the fastest possible time; unlike a speedup, neither grows with a slower
reference. Times are in milliseconds, from the same clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from verl_kernel.env import ONLY_THIS_SIZE, EvalResult, EvalStatus
from verl_kernel.errors import DataError

Rank = tuple[bool, float, float]


def roofline_share(kernel_ms: float, roofline_ms: float) -> float:
    """Return roofline time / kernel time, in [0, 1]; 1 for a kernel that needs less work than the roofline counts."""
    return min(1.0, roofline_ms / kernel_ms)


def sol_score(kernel_ms: float, reference_ms: float, roofline_ms: float) -> float | None:
    """Return 1 / (1 + (T - T_sol) / (T_base - T_sol)): 0.5 at T = T_base, 1 at T = T_sol (arXiv 2603.19173).

    None if the reference itself is at its roofline, so that nothing can be gained. The paper's T_base is a tuned
    baseline; here it is the reference in the mode in which it was timed.
    """
    room = reference_ms - roofline_ms
    if room <= 0:
        return None
    return 1.0 / (1.0 + max(0.0, kernel_ms - roofline_ms) / room)


@dataclass(frozen=True)
class Attempt:
    """One answer to a task, in a sample (an independent trajectory), at a turn."""

    task: str
    sample: int
    """Number of the sample, from 0."""
    turn: int
    """Number of the turn, from 1."""
    status: str
    """`env.EvalStatus` as text; `decoy` even if the gym only recorded that it is one."""
    correct: bool
    """Whether the answer may earn a reward: right values that come from its own kernels, no hack, safe."""
    compiled: bool = False
    speedup: float | None = None
    """Point estimate of the speedup; None if it is unknown or the answer is not correct."""
    sure_speedup: float | None = None
    """Lower end of the interval of a measured speedup; on a simulated clock the speedup itself."""
    roofline: float | None = None
    """Share of the fastest possible time that the answer reaches, in [0, 1]."""
    sol: float | None = None
    """SOL score: 0.5 at the reference's time, 1 at the roofline."""
    tokens: int | None = None
    """Tokens of the prompt and of the answer together."""
    level: int | None = None
    family: str | None = None
    found_decoy: bool = False
    """Whether its kernels were found not to matter, independent of the verdict."""
    time_coverage: float | None = None
    """Share of device time in its own kernels; None if it is unknown or the answer is not correct."""
    number_coverage: float | None = None
    """Share of launches that are its own kernels; None as above."""
    novel: bool | None = None
    """Whether its program's normal form is not in the cold start; None without a program, or if it was not measured."""
    novel_bytes: bool | None = None
    """The same of its program's bytes."""
    after_wrong: bool | None = None
    """Whether the answer before it in its sample was wrong; None of a first answer, and after a lost one."""
    any_size: bool | None = None
    """Whether it is right at sizes too that its task does not name; None if it was not judged there."""
    predicted_low: float | None = None
    """Lower end of the interval of a predicted speedup; None if it was measured, or is unknown."""

    @property
    def lost(self) -> bool:
        """Whether the gym failed, so that nothing is known about the answer."""
        return self.status == "infra_error"

    @property
    def is_decoy(self) -> bool:
        """Whether its kernels do not matter for its output."""
        return self.found_decoy or self.status == "decoy"

    @property
    def is_hack(self) -> bool:
        """Whether it is a hack or a decoy."""
        return self.is_decoy or self.status == "hacking"

    def is_fast(self, p: float) -> bool:
        """Whether it is correct and more than `p` times as fast as the reference (fast_p of arXiv 2502.10517)."""
        return self.correct and self.speedup is not None and self.speedup > p

    def is_surely_fast(self, p: float) -> bool:
        """Whether it is correct and the whole interval of its speedup, measured or predicted, lies above `p`."""
        low = self.sure_speedup if self.predicted_low is None else self.predicted_low
        return self.correct and low is not None and low > p


def attempt_of(
    result: EvalResult,
    *,
    task: str | None = None,
    sample: int = 0,
    turn: int = 1,
    tokens: int | None = None,
    level: int | None = None,
    family: str | None = None,
    novelty: tuple[bool, bool] | None = None,
) -> Attempt:
    """Take from a verdict what figures need; numbers that are not finite or not above 0 count as unknown.

    `novelty` is `reward.novelty.Novelty` of the program, by normal form and by bytes.
    """
    right = result.rewarded
    share, sol = _nearness(result) if right else (None, None)
    return Attempt(
        task=result.task_id if task is None else task,
        sample=sample,
        turn=turn,
        status=_status(result),
        correct=right,
        compiled=bool(result.compiled),
        speedup=_positive(result.speedup) if right else None,
        sure_speedup=_positive(result.sure_speedup) if right else None,
        predicted_low=_positive(result.speedup_interval[0]) if right and result.speedup_interval else None,
        roofline=share,
        sol=sol,
        tokens=tokens,
        level=level,
        family=family,
        found_decoy=bool(result.decoy_kernel),
        time_coverage=result.time_coverage if right else None,
        number_coverage=result.number_coverage if right else None,
        any_size=None if result.other_sizes is None else ONLY_THIS_SIZE not in result.hack_flags,
        novel=novelty and novelty[0],
        novel_bytes=novelty and novelty[1],
    )


def _status(result: EvalResult) -> str:
    is_decoy = result.status is EvalStatus.OK and bool(result.decoy_kernel)
    return (EvalStatus.DECOY if is_decoy else result.status).value


def _nearness(result: EvalResult) -> tuple[float | None, float | None]:
    """Return the share of the roofline and the SOL score."""
    medians = [
        None if timing is None else _positive(timing.median) for timing in (result.kernel_ms, result.reference_ms)
    ]
    (kernel, reference), roofline = medians, _positive(result.roofline_ms)
    if kernel is None or roofline is None:
        return None, None
    sol = None if reference is None else sol_score(kernel, reference, roofline)
    return roofline_share(kernel, roofline), sol


def _positive(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value > 0 else None


def rank(sure_speedup: float | None, speedup: float | None) -> Rank:
    """Return a key that grows with how good a kernel is: by its sure speedup if that is known, then by its speedup."""
    return sure_speedup is not None, sure_speedup or 0.0, speedup or 0.0


def best(history: Sequence[Attempt]) -> Attempt:
    """Return the correct answer of the highest `rank`, else one that compiled, else the first.

    Among equal answers, return the earliest. Lost answers are chosen only if there are no others.
    """
    judged = [attempt for attempt in history if not attempt.lost] or list(history)
    return max(
        judged,
        key=lambda attempt: (
            attempt.correct,
            attempt.correct and rank(attempt.sure_speedup, attempt.speedup),
            attempt.compiled,
        ),
    )


def best_by_task(attempts: Sequence[Attempt]) -> dict[str, Attempt]:
    """Return the best answer of each task that has a correct one."""
    correct: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        if attempt.correct:
            correct.setdefault(attempt.task, []).append(attempt)
    return {task: best(answers) for task, answers in correct.items()}


@dataclass(frozen=True)
class PlannedTask:
    """A task with its level and family, under which it is reported."""

    task: str
    level: int | None = None
    family: str | None = None


@dataclass(frozen=True)
class RunPlan:
    """Tasks, samples of each and turns of each sample."""

    tasks: tuple[PlannedTask, ...]
    samples: int
    turns: int = 1

    @classmethod
    def of(cls, attempts: Sequence[Attempt]) -> RunPlan:
        """Infer the request from the attempts: every task that occurs, with the largest sample and turn numbers."""
        tasks = {attempt.task: PlannedTask(attempt.task, attempt.level, attempt.family) for attempt in attempts}
        samples, turns = (max((getattr(attempt, key) for attempt in attempts), default=0) for key in ("sample", "turn"))
        return cls(tuple(tasks.values()), samples + bool(attempts), turns)

    def refuse_others(self, attempts: Sequence[Attempt]) -> None:
        """Check that the attempts are answers to what was asked, each given once.

        Raises:
            DataError: an attempt was not asked for, or occurs twice.
        """
        tasks, answered = {planned.task for planned in self.tasks}, set()
        if len(tasks) < len(self.tasks):
            raise DataError("two tasks of the suite have the same name: give each task a name of its own")
        for attempt in attempts:
            key = (attempt.task, attempt.sample, attempt.turn)
            if (
                attempt.task not in tasks
                or not 0 <= attempt.sample < self.samples
                or not 1 <= attempt.turn <= self.turns
            ):
                raise DataError(f"{_name(attempt)} was not asked for: take the results of one run of this suite only")
            if key in answered:
                raise DataError(f"{_name(attempt)} is there twice: take the results of one run only")
            answered.add(key)


def _name(attempt: Attempt) -> str:
    return f"the answer to task {attempt.task}, sample {attempt.sample}, turn {attempt.turn}"
