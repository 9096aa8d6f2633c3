# SPDX-License-Identifier: Apache-2.0
"""The cases of the conformance suite; every evaluator must pass each of them."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from verl_kernel.env.conformance import programs
from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool.stats import PoolStats
from verl_kernel.env.request import Job
from verl_kernel.env.result import EvalResult, EvalStatus
from verl_kernel.env.task import Task
from verl_kernel.errors import TaskError

OPTIONS = GymOptions(
    static_check="off",
    correctness_trials=2,
    run_timeout_s=4.0,
    load_timeout_s=6.0,
    reference_timeout_s=6.0,
    num_judges=2,
    cpus_per_judge=0.5,
    memory_mb=1024,
)
"""Options of the evaluator: no static gate, so that the other layers are tested, and limits that keep the suite short.
"""
SEED = 11
TASK = Task(programs.REFERENCE, task_id="conformance")


class Evaluator(Protocol):
    """The interface under test."""

    async def evaluate(
        self, task: Task, source: str, *, kernel: str = "", validate: bool = False, step: int | None = None
    ) -> EvalResult:
        """Judge one candidate."""
        ...

    def evaluate_many(self, jobs: Sequence[Job]) -> list[EvalResult]:
        """Judge candidates and return results in the order of `jobs`."""
        ...

    def stats(self) -> PoolStats:
        """Return the current judges, queue and counts."""
        ...

    def close(self) -> None:
        """End the evaluator and its judges."""
        ...


class Unexpected(Exception):
    """An expectation of a case does not hold."""


def expect(condition: bool, what: str, got: object) -> None:
    """Raise Unexpected unless `condition` holds; the message says what was expected and what came."""
    if not condition:
        raise Unexpected(f"expected {what}, got {got!r:.500}")


def judged(evaluator: Evaluator, source: str, task: Task = TASK) -> EvalResult:
    """Return the verdict on one source."""
    return evaluator.evaluate_many([(task, source, "kernel.py")])[0]


WALL_CLOCK: dict[str, Any] = {"stage_seconds": {}, "queue_seconds": None}
"""Fields that vary between equal evaluations, with neutral values for a comparison."""
VERDICT = ("status", "compiled", "correctness", "decoy_kernel", "hack_flags", "fallback_ops", "error", "seed_commit")
"""Fields that do not vary where times are measured."""


def _verdict(source: str, *statuses: EvalStatus) -> Callable[[Evaluator], None]:
    """Return a case: `source` gets one of `statuses` at the first attempt, an error message and no reward."""

    def case(evaluator: Evaluator) -> None:
        result = judged(evaluator, source)
        expect(result.status in statuses, " or ".join(statuses), (result.status.value, result.error))
        expect(not result.rewarded, "no reward", result)
        expect(result.error is not None, "an error with a message", result.error)
        expect(result.attempts == 1, "a verdict at the first attempt", result.attempts)

    return case


def _unusable(reference: str, reason: str) -> Callable[[Evaluator], None]:
    """Return a case: an unusable reference raises TaskError every time, and the evaluator goes on serving."""

    def case(evaluator: Evaluator) -> None:
        task = Task(reference, task_id="unfit")
        for source in (programs.HONEST, programs.WRONG):
            try:
                result = judged(evaluator, source, task)
            except TaskError as exc:
                expect("unfit" in str(exc) and reason in str(exc), f"a message with {reason!r}", str(exc))
                expect("\n" not in str(exc), "one line", str(exc))
            else:
                raise Unexpected(f"expected a TaskError, got the status {result.status.value}")
        _serves(evaluator)

    return case


def _serves(evaluator: Evaluator) -> None:
    result = judged(evaluator, programs.HONEST)
    expect(result.rewarded, "an honest kernel to be served afterwards", (result.status, result.error))


def _honest(evaluator: Evaluator) -> None:
    result = judged(evaluator, programs.HONEST)
    expect(result.rewarded and result.error is None, "an honest kernel to be rewarded", (result.status, result.error))
    expect(result.compiled is True and result.decoy_kernel is False, "compiled and no decoy", result)
    figures = (result.speedup, result.kernel_ms, result.reference_ms, result.time_coverage, result.number_coverage)
    expect(None not in figures, "time and coverage to be known", figures)
    expect(result.trials is not None and result.trials.passed == result.trials.total == 2, "2 trials", result.trials)


def _format(kind: str) -> Callable[[Evaluator], None]:
    """Return a case: in this format the right candidate is rewarded and one with another factor is not.

    A GPU that lacks the format may refuse both.
    """

    def case(evaluator: Evaluator) -> None:
        task = Task(programs.reference_in(kind), task_id=kind)
        right, wrong = (judged(evaluator, source, task) for source in (programs.HONEST, programs.WRONG_FACTOR))
        lacks = kind in _MAY_LACK and right.status is EvalStatus.COMPILE_ERROR
        expect(right.rewarded or lacks, f"an honest kernel in {kind} to be rewarded", (right.status, right.error))
        verdict = EvalStatus.COMPILE_ERROR if lacks else EvalStatus.INCORRECT
        expect(wrong.status is verdict, verdict, (wrong.status.value, wrong.error))

    return case


def _sizes(evaluator: Evaluator) -> None:
    task = Task(programs.SIZES, task_id="sizes")
    right = judged(evaluator, programs.AT_ALL_SIZES, task)
    expect(right.rewarded and len(right.sizes or ()) == 3, "an honest kernel rewarded at 3 sizes", right)
    fast = judged(evaluator, programs.FAST_AT_ONE_SIZE, task)
    first = fast.sizes[0].speedup if fast.sizes else None
    expect(
        fast.speedup is not None and first is not None and fast.speedup < first / 2,
        "no pay for speed at one size only",
        fast.sizes,
    )
    one, torchs = (judged(evaluator, text, task) for text in (programs.RIGHT_AT_ONE_SIZE, programs.TORCH_AT_ONE_SIZE))
    verdicts = [(result.status, result.wrong_sizes) for result in (one, torchs)]
    wanted = [(EvalStatus.INCORRECT, ("17", "32")), (EvalStatus.DECOY, ("32",))]
    expect(verdicts == wanted, "what is wrong at some sizes to be refused", verdicts)


_MAY_LACK = ("float8_e4m3fn", "float8_e5m2")


def _provenance(evaluator: Evaluator) -> None:
    result = judged(evaluator, programs.HONEST)
    expect(result.is_simulated or result.timing_source == "cuda_event", "a clock's name", result.timing_source)
    expect({"torch", "triton", "python", "device"} <= result.env.keys(), "versions", result.env)
    expect(bool(result.isolation), "the mechanisms of isolation", result.isolation)
    expect(result.seed_commit is not None, "a commitment to the seed", result.seed_commit)


def _order(evaluator: Evaluator) -> None:
    sources = [programs.HONEST, programs.WRONG, programs.NO_CLASS, programs.TORCH_ONLY] * 2
    names = [f"{number}.py" for number in range(len(sources))]
    results = evaluator.evaluate_many([(TASK, source, name) for source, name in zip(sources, names, strict=True)])
    expect([result.kernel for result in results] == names, "results under their names in order", results)
    statuses = [EvalStatus.OK, EvalStatus.INCORRECT, EvalStatus.LOAD_ERROR, EvalStatus.DECOY] * 2
    expect([result.status for result in results] == statuses, "each its verdict", [r.status for r in results])


def _judged_once(evaluator: Evaluator) -> None:
    source, before = programs.HONEST + "# again\n", evaluator.stats().evaluations
    alias = Task(programs.REFERENCE, task_id="alias")
    first, second, aliased = evaluator.evaluate_many([(TASK, source, "a"), (TASK, source, "b"), (alias, source, "c")])
    expect(evaluator.stats().evaluations - before == 1, "one evaluation of one source", evaluator.stats())
    names = [(result.task_id, result.kernel) for result in (first, second, aliased)]
    expect(names == [("conformance", "a"), ("conformance", "b"), ("alias", "c")], "the callers' names", names)
    same = first.model_copy(update={"task_id": "", "kernel": ""})
    expect(
        all(r.model_copy(update={"task_id": "", "kernel": ""}) == same for r in (second, aliased)), "one result", second
    )


def _steps(evaluator: Evaluator) -> None:
    source, before = programs.HONEST + "# steps\n", evaluator.stats().evaluations

    async def twice(step: int) -> list[EvalResult]:
        return await asyncio.gather(*(evaluator.evaluate(TASK, source, step=step) for _ in range(2)))

    for step in (1, 2):
        asyncio.run(twice(step))
    expect(evaluator.stats().evaluations - before == 2, "an evaluation per step", evaluator.stats())


def _deterministic(evaluator: Evaluator) -> None:
    async def in_step(source: str, step: int) -> EvalResult | dict[str, Any]:
        result = (await evaluator.evaluate(TASK, source, step=step)).model_copy(update=WALL_CLOCK)
        return result if result.timing_source is None or result.is_simulated else result.model_dump(include={*VERDICT})

    for source in (programs.HONEST, programs.WRONG, programs.RAISES):
        first, second = (asyncio.run(in_step(source, step)) for step in (101, 102))
        expect(first == second, f"the same result under the same seed: {first!r:.400}", second)


def _json(evaluator: Evaluator) -> None:
    for source in (programs.HONEST, programs.WRONG, programs.NAN):
        result = judged(evaluator, source)
        again = EvalResult.model_validate_json(result.model_dump_json())
        expect(again == result, "a result that survives JSON", again)
        expect(pickle.loads(pickle.dumps(result)) == result, "a result that survives pickling", result)


def _flood(evaluator: Evaluator) -> None:
    result = judged(evaluator, programs.FLOODS)
    expect(result.rewarded, "output to be dropped, not punished", (result.status, result.error))
    expect(len(result.model_dump_json()) < 20_000, "a small result", len(result.model_dump_json()))


def _odd_sources(evaluator: Evaluator) -> None:
    for source in programs.ODD_SOURCES:
        result = judged(evaluator, source)
        verdicts = (EvalStatus.LOAD_ERROR, EvalStatus.REJECTED_STATIC)
        expect(result.status in verdicts, f"a verdict on {source!r:.30}", (result.status, result.error))


def _no_paths(evaluator: Evaluator) -> None:
    error = judged(evaluator, programs.RAISES).error
    text = "" if error is None else f"{error.message}\n{error.traceback_tail}"
    expect("in forward" in text and "/" not in text, "the line at fault and no path of the machine", text)


def _timeout_is_kept(evaluator: Evaluator) -> None:
    """Check the seconds only for a sleeping candidate.

    The limit of a candidate that computes counts processor time, which may take longer on a busy machine.
    """
    _verdict(programs.HANGS + "# again\n", EvalStatus.TIMEOUT)(evaluator)
    start = time.monotonic()
    _verdict(programs.SLEEPS, EvalStatus.TIMEOUT)(evaluator)
    seconds = time.monotonic() - start
    expect(seconds < OPTIONS.run_timeout_s + 4.0, "the deadline to be kept", f"{seconds:.1f} s")
    _serves(evaluator)


def _infra(evaluator: Evaluator) -> None:
    task = Task(programs.CRASHING_REFERENCE, task_id="crashing")
    result = judged(evaluator, programs.HONEST, task)
    expect(result.status is EvalStatus.INFRA_ERROR, "infra_error, as no kernel was judged", result)
    unknown = (result.correctness, result.speedup, result.compiled)
    expect(unknown == (None, None, None), "everything unknown", unknown)
    expect(result.attempts == 2 and not result.rewarded, "two attempts", result.attempts)
    _serves(evaluator)


def _cancellation(evaluator: Evaluator) -> None:
    """Cancel requests while hanging candidates keep all judges busy: otherwise the requests might start first."""
    hanging = [f"{programs.HANGS}# in front {number}\n" for number in range(OPTIONS.num_judges)]
    sources = [f"{programs.HONEST}# cancelled {number}\n" for number in range(12)]
    before = evaluator.stats().evaluations

    async def scene() -> list[EvalResult]:
        front = [asyncio.ensure_future(evaluator.evaluate(TASK, source)) for source in hanging]
        await _until(evaluator, front, lambda stats: stats.busy == len(front), "every judge at work")
        requests = [asyncio.ensure_future(evaluator.evaluate(TASK, source)) for source in sources]
        await _until(evaluator, front, lambda stats: stats.queue + stats.held_back == len(sources), "the rest to wait")
        for request in requests[:-2]:
            request.cancel()
        await asyncio.gather(*front, *requests, return_exceptions=True)
        return [request.result() for request in requests[-2:]]

    results = asyncio.run(scene())
    expect(all(result.rewarded for result in results), "the others to be served", results)
    _idle(evaluator)
    count = evaluator.stats().evaluations - before
    expect(count == len(hanging) + 2, "cancelled requests not to start", f"{count} evaluations")


async def _until(
    evaluator: Evaluator, front: Sequence[asyncio.Future[EvalResult]], condition: Callable[[PoolStats], bool], what: str
) -> None:
    """Wait until the pool fulfils a condition; fail if a request of `front` ends before."""
    while not condition(stats := await asyncio.to_thread(evaluator.stats)):
        expect(not any(request.done() for request in front), what, stats)
        await asyncio.sleep(0.02)


def _burst(evaluator: Evaluator) -> None:
    results = evaluator.evaluate_many([(TASK, f"{programs.HONEST}# burst {number}\n", "") for number in range(24)])
    expect(all(result.rewarded for result in results), "all of a burst to be served", results)
    _idle(evaluator)


def _idle(evaluator: Evaluator) -> None:
    """Wait up to 10 s until the queue is empty and no judge is busy."""
    end = time.monotonic() + 10
    while (stats := evaluator.stats()).queue or stats.held_back or stats.busy:
        if time.monotonic() > end:
            raise Unexpected(f"expected an idle pool, got {stats!r:.500}")
        time.sleep(0.02)


_MEMORY = (EvalStatus.OOM, EvalStatus.CRASH)
CASES: dict[str, Callable[[Evaluator], None]] = {
    "honest_kernel_is_rewarded": _honest,
    "result_carries_provenance": _provenance,
    "wrong_values_are_incorrect": _verdict(programs.WRONG, EvalStatus.INCORRECT),
    "wrong_shape_is_incorrect": _verdict(programs.TRANSPOSED, EvalStatus.INCORRECT),
    "wrong_dtype_is_incorrect": _verdict(programs.DOUBLE, EvalStatus.INCORRECT),
    **{f"{kind}_is_judged": _format(kind) for kind in programs.FORMATS},
    "every_size_is_judged": _sizes,
    "nan_is_incorrect": _verdict(programs.NAN, EvalStatus.INCORRECT),
    "changed_inputs_are_incorrect": _verdict(programs.WRITES_INPUTS, EvalStatus.INCORRECT),
    "no_launch_is_a_decoy": _verdict(programs.TORCH_ONLY, EvalStatus.DECOY),
    "no_python_is_a_load_error": _verdict(programs.NO_PYTHON, EvalStatus.LOAD_ERROR),
    "no_class_is_a_load_error": _verdict(programs.NO_CLASS, EvalStatus.LOAD_ERROR),
    "odd_sources_are_verdicts": _odd_sources,
    "broken_kernel_is_a_compile_error": _verdict(programs.BROKEN_KERNEL, EvalStatus.COMPILE_ERROR),
    "exception_is_a_runtime_error": _verdict(programs.RAISES, EvalStatus.RUNTIME_ERROR),
    "errors_name_lines_and_no_paths": _no_paths,
    "signal_is_a_crash": _verdict(programs.CRASHES, EvalStatus.CRASH),
    "silent_exit_is_a_crash": _verdict(programs.EXITS, EvalStatus.CRASH),
    "hang_is_a_timeout": _timeout_is_kept,
    "hang_at_load_is_a_timeout": _verdict(programs.HANGS_AT_LOAD, EvalStatus.TIMEOUT),
    "memory_is_bounded": _verdict(programs.EATS_MEMORY, *_MEMORY),
    "output_is_dropped": _flood,
    "results_come_in_order": _order,
    "one_source_is_judged_once": _judged_once,
    "steps_have_verdicts_of_their_own": _steps,
    "seed_determines_the_result": _deterministic,
    "result_survives_json": _json,
    "burst_is_served": _burst,
    "cancelled_requests_leave_the_queue": _cancellation,
    "raising_reference_is_a_task_error": _unusable(programs.RAISING_REFERENCE, "no data"),
    "empty_reference_is_a_task_error": _unusable(programs.EMPTY_REFERENCE, "get_inputs() returns nothing"),
    "random_reference_is_a_task_error": _unusable(programs.RANDOM_REFERENCE, "two calls"),
    "hanging_reference_is_a_task_error": _unusable(programs.HANGING_REFERENCE, "reference_timeout_s = 6 s"),
    "evaluator_failure_is_no_verdict": _infra,
    "pool_is_idle_in_the_end": _idle,
}
"""Cases by name; they are independent of each other, and quick ones come first."""
