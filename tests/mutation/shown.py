# SPDX-License-Identifier: Apache-2.0
"""How a check is shown to work: something is done to which it objects, and what comes of that is put into words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pytest

from tests.env.programs import REFERENCE, candidate
from tests.exploits.corpus import Case, load
from tests.exploits.tasks import TASKS
from verl_kernel.env import EvalResult, GymOptions, Judge, Task
from verl_kernel.env.judge.judge_processes import JudgeProcesses
from verl_kernel.env.judge.runner_client import Verdict
from verl_kernel.env.tamper.tripwire import WIRE

OPTIONS = GymOptions(
    device="cpu", static_check="off", correctness_trials=3, memory_checks="record", run_timeout_s=10,
    load_timeout_s=20, memory_mb=512, disk_mb=32, compile_for="sm_90", true_size="off",
)  # fmt: skip


class Judges:
    """Judges of any options, with the processes of one."""

    def __init__(self, first: Judge) -> None:
        self._first = first
        self._made: dict[tuple[object, ...], Judge] = {}

    def anew(self) -> Judges:
        """Judges that have prepared no task."""
        return Judges(self._first)

    def of(self, **changes: Any) -> Judge:
        key = tuple(sorted(changes.items()))
        if key not in self._made:
            self._made[key] = Judge(replace(OPTIONS, **changes), seed=5, processes=self._first.processes)
        return self._made[key]


Shown = Callable[[Judges], str]


@contextmanager
def judges(processes: JudgeProcesses | None = None) -> Iterator[Judges]:
    with Judge(OPTIONS, seed=5, processes=processes) as first:
        yield Judges(first)


@dataclass(frozen=True)
class Quick:
    """An outcome that needs neither a judge nor another process."""

    done: Callable[[], object]

    def __call__(self, judges: Judges) -> str:
        return str(self.done())


@lru_cache(maxsize=1)
def corpus() -> dict[str, Case]:
    """The attacks of `tests/exploits`, by name."""
    return {case.name: case for case in load() if not case.honest}


def program(task: str, source: str, **changes: Any) -> Shown:
    return lambda judges: told(judges.of(**changes).evaluate(Task(task), source))


def attack(name: str, **changes: Any) -> Shown:
    """The verdict on a program of the corpus, past the gate."""
    return lambda judges: program(TASKS[corpus()[name].task], corpus()[name].source, **changes)(judges)


def body(text: str, before: str = "", **changes: Any) -> Shown:
    """The verdict on a program whose forward has this body."""
    return program(REFERENCE, candidate(text, before), **changes)


def told(result: EvalResult) -> str:
    """A verdict in words."""
    kind = "" if result.error is None else f"/{result.error.type}"
    paid = "paid" if result.rewarded and result.speedup else "not paid"
    unknown = "" if result.true_size is None else f"; {result.true_size.unknown}"
    share = "" if result.number_coverage is None else f", coverage {result.number_coverage:.2f}"
    faster = "" if result.speedup is None else f", {result.speedup:.3g} times as fast"
    return f"{result.status.value}{kind}, {paid}, {[*result.hack_flags]}{share}{faster}{unknown}"


def value(done: Callable[[], object]) -> Shown:
    """What a function returns, or which verdict or other exception it raises."""
    return Quick(done)


def noted(done: Callable[[], object]) -> Shown:
    """What the tripwire notes of what a function does."""

    def notes() -> object:
        WIRE.take()
        WIRE.start()
        try:
            with suppress(RuntimeError):
                done()
        finally:
            WIRE.stop()
        return WIRE.take()

    return Quick(notes)


def failing(exc: Exception) -> Callable[..., Any]:
    """A function that raises."""

    def fail(*args: object, **named: object) -> None:
        raise exc

    return fail


def passing(node: str) -> Shown:
    return lambda judges: (
        "passes" if pytest.main(["-q", "-p", "no:cacheprovider", "--no-header", node]) == 0 else "fails"
    )


def outcome(shown: Shown, judges: Judges) -> str:
    """What comes of it; an exception is one of the outcomes, as what is left without a check may be none at all."""
    try:
        return shown(judges)
    except Verdict as verdict:
        return f"{verdict.status.value}/{verdict.error.type} {[flag.value for flag in verdict.flags]}"
    except Exception as exc:  # noqa: BLE001  whatever the evaluator does without the check is the answer
        return f"raised {type(exc).__name__}: {exc}"
