# SPDX-License-Identifier: Apache-2.0
"""The dispatcher of both pools: a bounded queue, a verdict cache, retries on other judges, and restarts of judges.

It runs in one event loop. If an evaluation fails through no fault of the candidate, it is repeated once, if possible
on another judge, and then ends as `infra_error`; an evaluation whose judge was lost is repeated up to three times more.
A failed judge gets no work until it answers again; a judge that keeps failing while others succeed is quarantined.
All judges have one GPU model. Callers wait while the queue is full.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, Generic

from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool.scheduling.judges import Handle, JudgeLost, Tries, UnusableTasks
from verl_kernel.env.pool.scheduling.scheduler import JudgeScheduler, Ticket
from verl_kernel.env.pool.stats import JudgeStats, PoolCounters, PoolOutcome, PoolStats, PrefilterStats, not_judged
from verl_kernel.env.pool.supervisor import JudgeSupervisor
from verl_kernel.env.pool.verdict_cache import SharedEvaluation, VerdictCache, verdict_key
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import OUT_OF_BOUNDS, EvalResult, EvalStatus
from verl_kernel.errors import EnvironmentNotReady, InfraError, TaskError

_LOG = logging.getLogger(__name__)
_MOST_VERDICTS = 4096
"""Verdicts in the cache."""


class Observer:
    """A receiver of a dispatcher's events; this base class ignores them."""

    def result(self, outcome: PoolOutcome, seconds: float) -> None:
        """Receive an evaluation that has ended; `seconds` include its time in the queue."""

    def state(self, stats: PoolStats) -> None:
        """Receive the pool's state after each evaluation."""


class Dispatcher(Generic[Handle]):
    """The queue in front of a fixed set of judges.

    Args:
        judges: handles of judges that have not been started.
        options: limits of the queue and rules of quarantine.
        observer: receives every evaluation.
        prefilter: judges each candidate first, and may refuse it.
    """

    def __init__(
        self,
        judges: Sequence[Handle],
        options: GymOptions,
        observer: Observer | None = None,
        prefilter: Prefilter[Handle] | None = None,
    ) -> None:
        self._judges = list(judges)
        self._scheduler: JudgeScheduler[Handle] = JudgeScheduler(
            self._judges, options.quarantine_after, options.quarantine_s, down=True
        )
        self._supervisor = JudgeSupervisor(self._judges, self._scheduler)
        self._admission = {urgent: asyncio.Semaphore(options.queue_size + len(judges)) for urgent in (False, True)}
        self._held_back = 0
        self._cache, self._unusable, self._tally = VerdictCache(_MOST_VERDICTS), UnusableTasks(), PoolCounters()
        self._is_apart, self._has_other_sizes = options.judges_validation_apart, options.other_sizes
        self._observer, self._prefilter = observer or Observer(), prefilter
        self._is_closed = False

    async def start(self) -> None:
        """Start the judges without waiting for them; later calls do nothing."""
        self._supervisor.start()
        if self._prefilter is not None:
            await self._prefilter.start()

    async def judge(self, request: EvalRequest, lost: int = 0) -> EvalResult:
        """Judge one candidate at each size of its task, or return the verdict on the same source in the same step.

        Args:
            request: the candidate and its task.
            lost: earlier attempts that ended when another dispatcher died.

        Raises:
            TaskError: the reference is unusable.
            EnvironmentNotReady: no judge can start.
        """
        result = await self._judge_one(request, lost)
        if not (self._has_other_sizes and result.rewarded):
            return result
        from verl_kernel.env.unnamed_sizes import other_sizes, with_other_sizes  # torch, which a pool does without

        others: dict[str, EvalResult] = {}
        for name, task in other_sizes(request.task).items():
            with suppress(TaskError):  # the reference does not take this size
                others[name] = await self._judge_one(replace(request, task=task), lost=0)
        return with_other_sizes(result, others)

    async def _judge_one(self, request: EvalRequest, lost: int) -> EvalResult:
        self._supervisor.start()
        pending = self._shared(request)
        if pending is not None:
            return (await pending.wait()).answer(request, lost)
        async with self._admitted(request.validate):
            # Look again: another caller may have asked for the same source while this request waited.
            pending = self._shared(request) or self._begin(request)
            return (await pending.wait()).answer(request, lost)

    async def ready(self) -> None:
        """Wait until all judges have started.

        Raises:
            EnvironmentNotReady: one of them cannot start.
        """
        if self._prefilter is not None:
            await self._prefilter.ready()
        await self._supervisor.ready()

    async def one_ready(self) -> None:
        """Wait until one judge, and one worker of the prefilter, have started.

        Raises:
            EnvironmentNotReady: none can start.
            InfraError: none starts.
        """
        if self._prefilter is not None:
            await self._prefilter.one_ready()
        await self._supervisor.one_ready()

    async def stats(self) -> PoolStats:
        """Return the pool's current state."""
        return self.snapshot()

    async def forget(self) -> None:
        """Forget all verdicts."""
        self._cache.forget()
        if self._prefilter is not None:
            await self._prefilter.forget()

    async def drain(self, nodes: Collection[str], numbers: Collection[int], on: bool) -> list[int]:
        """Stop giving work to judges, or resume; they finish what they have begun.

        Args:
            nodes: ids of nodes; affects all judges on them.
            numbers: numbers of single judges.
            on: True to drain, False to resume.

        Returns:
            Numbers of the judges affected now.
        """
        if self._prefilter is not None:
            await self._prefilter.drain(nodes, on)
        return self._supervisor.drain(nodes, numbers, on)

    async def close(self) -> None:
        """Stop supervising the judges, and refuse all requests."""
        self._is_closed = True
        if self._prefilter is not None:
            await self._prefilter.close()
        self._supervisor.close()
        self._scheduler.refuse(InfraError("the pool has been closed"))

    def snapshot(self) -> PoolStats:
        """Return the same as `stats`, for callers inside the event loop."""
        pairs = zip(self._judges, self._scheduler.states(), strict=True)
        judges = []
        for number, (judge, state) in enumerate(pairs):
            placement = judge.describe()
            judges.append(
                JudgeStats(number=number, state=state, node=placement.node, pid=placement.pid, model=placement.model)
            )
        prefilter = None if self._prefilter is None else self._prefilter.snapshot()
        return self._tally.stats(tuple(judges), self._scheduler.waiting, self._held_back, prefilter)

    def _shared(self, request: EvalRequest) -> SharedEvaluation | None:
        pending = self._cache.get(verdict_key(request, self._is_apart))
        if pending is not None:
            self._tally.remembered += 1
            if request.validate:
                pending.ticket.urgent = True
        return pending

    def _begin(self, request: EvalRequest) -> SharedEvaluation:
        ticket = Ticket(urgent=request.validate, task=request.task.cache_key)
        pending = SharedEvaluation(lambda own: self._attempt(request, own), ticket)
        return self._cache.put(verdict_key(request, self._is_apart), pending)

    @asynccontextmanager
    async def _admitted(self, urgent: bool) -> AsyncIterator[None]:
        self._held_back += 1
        try:
            await self._admission[urgent].acquire()
        finally:
            self._held_back -= 1
        try:
            yield
        finally:
            self._admission[urgent].release()

    async def _attempt(self, request: EvalRequest, pending: SharedEvaluation) -> PoolOutcome:
        """Ask the prefilter, then one judge after another until one of them answers or no attempt is left."""
        self._unusable.check(request.task)
        tries: Tries[Handle] = Tries()
        prefilter_result = None if self._prefilter is None else await self._prefilter.judge_on_cpu(request)
        if self._prefilter is not None and prefilter_result is not None and self._prefilter.ends(prefilter_result):
            tries.begin()
            return self._ended(
                untimed(prefilter_result) if prefilter_result.rewarded else prefilter_result,
                tries,
                {"prefilter": "refused"},
            )
        while tries.may_repeat:
            judge = await self._scheduler.acquire(pending.ticket)
            pending.started = True
            tries.begin()
            self._tally.evaluations += 1
            try:
                result = await judge.judge(request)
            except InfraError as exc:
                tries.failed(judge, exc)
                self._failed(judge, request, tries)
                pending.ticket = pending.ticket.again(judge)
                continue
            except TaskError as exc:
                raise self._unusable.remember(request.task, exc) from None
            finally:
                self._scheduler.release(judge)
            # The earlier judge is to blame only now that another one could do the same job.
            self._served(judge, tries.suspect)
            if self._prefilter is not None:
                self._prefilter.note(result)
            if prefilter_result is not None:
                result = result.model_copy(update={"profile": prefilter_result.profile})
            return self._ended(result, tries, {})
        return self._ended(not_judged(request, tries.failure, tries.attempts), tries, {})

    def _ended(self, result: EvalResult, tries: Tries[Handle], env: dict[str, str]) -> PoolOutcome:
        outcome = PoolOutcome(result, tries.attempts, tries.queue_seconds, env)
        self._tally.note(result)
        self._tally.infra_errors += result.status is EvalStatus.INFRA_ERROR
        self._observer.result(outcome, time.monotonic() - tries.begun)
        self._observer.state(self.snapshot())
        return outcome

    def _failed(self, judge: Handle, request: EvalRequest, tries: Tries[Handle]) -> None:
        if self._is_closed:  # then judges end because they were told to
            return
        then = "on to the next" if tries.may_repeat else "the candidate is not judged"
        number, name, attempts = self._judges.index(judge), request.task.task_id, tries.attempts
        _LOG.warning("judge %d failed on task %s (attempt %d, %s): %s", number, name, attempts, then, tries.failure)
        self._tally.retries += tries.may_repeat  # the last failure is followed by no other attempt
        self._supervisor.repair(judge)
        if isinstance(tries.failure, JudgeLost):
            self._supervisor.ask_neighbours(judge)

    def _served(self, judge: Handle, suspect: Handle | None) -> None:
        """Count an earlier failure against its judge only now that another judge succeeded.

        If no judge succeeds, the job itself may cause the failures.
        """
        self._scheduler.note_success(judge)
        if suspect is not None and suspect is not judge:
            self._count_failure(suspect)

    def _count_failure(self, judge: Handle) -> None:
        seconds = self._scheduler.note_failure(judge)
        if seconds:
            self._tally.quarantines += 1
            number = self._judges.index(judge)
            _LOG.warning("judge %d keeps failing: out of rotation for %g s", number, seconds)


# The prefilter (`kernelgym.prefilter: cpu`): CPU workers in front of a pool of GPUs, which saves GPU time.
#
# A worker judges a candidate by one trial on a CPU, with the same static gate and with the checks that only exist on
# a CPU. Its refusal is final only if it holds on a GPU too (`is_final`). With `prefilter_speedup` it does all trials,
# and a right candidate that is surely slower ends there, without a time (`is_slow`). All other candidates go on to a
# GPU, which judges them from scratch; among them are those that a CPU cannot judge, because the emulator has no
# definition of an operation or is too slow. Compiled kernels and times of a worker are not reused: they come from a
# process that ran the untrusted candidate. Its profile is added to the result of the GPU, which counts nothing: no
# verdict and no reward reads a profile.


_FINAL = tuple(map(EvalStatus, ("rejected_static", "unsafe", "incorrect", "hacking", "decoy")))
_PREDICTED = (
    *("kernel_ms", "reference_ms", "roofline_ms", "speedup", "speedup_low", "timing_source", "reference_mode"),
    *("kernel_interval_ms", "reference_interval_ms", "speedup_interval", "time_coverage", "top_kernels"),
)
"""Fields of a result that depend on a clock."""
_WITHOUT_GPU = ("static", "wait")
"""Stages of an evaluation that do not use the judge's GPU."""


def prefilter_options(options: GymOptions) -> GymOptions:
    """Return the options of the prefilter's workers: the pool's, with one trial and without what only a clock needs.

    Where a worker's verdict on a right candidate may be final (`prefilter_speedup`), it has all trials.

    Args:
        options: those of the pool.
    """
    trials: dict[str, Any] = {"correctness_trials": 1, "trial_choice": None, "ablation": False}
    return replace(
        options,
        **(trials if options.prefilter_speedup is None else {}),
        device="cpu",
        prefilter="off",
        prefilter_speedup=None,
        num_judges=options.prefilter_judges,
        gpus_per_judge=0.0,
        judge_resources=(),
        require_idle_gpu=False,
        reference_mode="eager",
        compile="all",
        true_size="auto",
        memory_checks="refuse",
    )


def is_final(result: EvalResult) -> bool:
    """Tell whether a worker's verdict ends the evaluation without a GPU.

    It does if the static gate, the compiler for the pool's target, the comparison of values or a memory check refused
    the candidate. Other errors on a CPU, and its time and memory limits, say little about a GPU.
    """
    stage, kind = ("", "") if result.error is None else (result.error.stage, result.error.type)
    is_refused = result.status is EvalStatus.COMPILE_ERROR and stage == "compile"
    return result.status in _FINAL or is_refused or kind == OUT_OF_BOUNDS


def is_slow(result: EvalResult, speedup: float | None) -> bool:
    """Tell whether a right candidate's predicted speedup surely lies below `speedup`; None asks for nothing."""
    interval = result.speedup_interval
    return speedup is not None and result.rewarded and interval is not None and interval[1] < speedup


def untimed(result: EvalResult) -> EvalResult:
    """Return a worker's result without its times, which a model of a GPU made."""
    return result.model_copy(update=dict.fromkeys(_PREDICTED))


class Prefilter(Generic[Handle]):
    """The CPU workers in front of a pool, with counts of what they refused and how much GPU time that saved.

    Args:
        workers: handles of workers that have not been started.
        options: those of the pool.
    """

    def __init__(self, workers: Sequence[Handle], options: GymOptions) -> None:
        self._pool: Dispatcher[Handle] = Dispatcher(workers, prefilter_options(options))
        self._slow = options.prefilter_speedup
        self._passed = self._refused = self._undecided = self._timed = 0
        self._gpu_seconds = 0.0

    async def start(self) -> None:
        """Start the workers without waiting for them."""
        await self._pool.start()

    async def ready(self) -> None:
        """Wait until all workers have started.

        Raises:
            EnvironmentNotReady: one of them cannot start.
        """
        await self._pool.ready()

    async def one_ready(self) -> None:
        """Wait until one worker has started.

        Raises:
            EnvironmentNotReady: none can start.
        """
        await self._pool.one_ready()

    async def judge_on_cpu(self, request: EvalRequest) -> EvalResult | None:
        """Judge on a CPU; return the result, which may be final (`is_final`), or None if the workers cannot judge."""
        try:
            result = await self._pool.judge(request)
        # The pool's own judges report an unusable task themselves, and can work if the workers cannot.
        except (TaskError, EnvironmentNotReady):
            self._undecided += 1
            return None
        if self.ends(result):
            self._refused += 1
        else:
            self._passed += result.status is EvalStatus.OK
            self._undecided += result.status is not EvalStatus.OK
        return result

    def ends(self, result: EvalResult) -> bool:
        """Tell whether a worker's result ends the evaluation without a GPU."""
        return is_final(result) or is_slow(result, self._slow)

    def note(self, result: EvalResult) -> None:
        """Add the seconds for which this evaluation used a GPU of the pool to the mean."""
        if result.status is not EvalStatus.INFRA_ERROR:
            self._timed += 1
            self._gpu_seconds += sum(s for stage, s in result.stage_seconds.items() if stage not in _WITHOUT_GPU)

    async def forget(self) -> None:
        """Forget all verdicts."""
        await self._pool.forget()

    async def drain(self, nodes: Collection[str], on: bool) -> None:
        """Stop giving work to the workers on these nodes, or resume."""
        await self._pool.drain(nodes, (), on)

    async def close(self) -> None:
        """Refuse requests."""
        await self._pool.close()

    def snapshot(self) -> PrefilterStats:
        """Return the current workers and counts."""
        once = self._gpu_seconds / self._timed if self._timed else 0.0
        return PrefilterStats(
            judges=self._pool.snapshot().judges,
            passed=self._passed,
            refused=self._refused,
            undecided=self._undecided,
            gpu_seconds_saved=self._refused * once,
        )
