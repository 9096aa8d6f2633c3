# SPDX-License-Identifier: Apache-2.0
"""What the scores get to know of a judged answer, and what a run was asked for."""

import pytest

from tests.bench.recorded import OK, WRONG, timed, turn, write_run
from verl_kernel.bench.records import SuiteTask, read_run
from verl_kernel.bench.scores import asked_of, attempt, score_run
from verl_kernel.errors import DataError
from verl_kernel.figures.attempts import AskedTask, Attempt


def test_a_correct_answer():
    found = attempt(
        turn("a", 1, 2, timed(2.0, roofline_ms=0.1), level=3, family="map", prompt_tokens=5, completion_tokens=7)
    )
    assert found == Attempt(
        "a", 1, 2, "ok", True, True, 2.0, 2.0, pytest.approx(0.2), pytest.approx(1 / (1 + 0.4 / 0.9)), 12, 3, "map"
    )


def test_measured_noise_lowers_what_is_sure():
    measured = timed(1.3, timing_source="cuda_event", speedup_low=1.1)
    assert attempt(turn("a", 0, 1, measured)).sure_speedup == 1.1
    assert attempt(turn("a", 0, 1, timed(1.3, timing_source="cuda_event"))).sure_speedup is None


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (timed(2.0, decoy_kernel=True), "decoy"),
        (timed(2.0, task_flags=("constant_output",)), "ok"),
        (WRONG, "incorrect"),
        ({"status": "infra_error"}, "infra_error"),
        (timed(2.0) | {"status": "hacking"}, "hacking"),
    ],
)
def test_what_earns_nothing_has_neither_speedup_nor_roofline(verdict, status):
    found = attempt(turn("a", 0, 1, verdict | {"roofline_ms": 0.1}))
    assert (found.status, found.correct) == (status, False)
    assert found.speedup is found.sure_speedup is found.roofline is found.sol is found.tokens is None


@pytest.mark.parametrize("broken", [0.0, -1.0, float("inf"), float("nan")])
def test_a_broken_number_is_unknown(broken):
    found = attempt(turn("a", 0, 1, {**OK, "speedup": broken, "roofline_ms": broken}))
    assert found.correct
    assert found.speedup is found.sure_speedup is found.roofline is None


def test_tasks_without_any_answer_were_asked_for_too(tmp_path):
    turns, tasks = [turn("a", 0, 1, OK, level=1)], [SuiteTask(task_id=t, task_hash="h", level=2) for t in ("a", "b")]
    header, turns = read_run(write_run(tmp_path, turns, tasks, tasks=3))
    asked = asked_of(header, tasks, turns)
    assert asked.tasks == (AskedTask("a", 2), AskedTask("b", 2), AskedTask("unanswered task 1"))
    assert (asked.samples, asked.turns) == (2, 2)
    _, scores = score_run(tmp_path)
    assert scores.missing == 5
    assert scores.overall.last_turn.values["correct"].value == pytest.approx(1 / 6)
    with pytest.raises(DataError, match="counts 3 tasks and its answers are to 4"):
        asked_of(header, [SuiteTask(task_id=t, task_hash="h") for t in "bcd"], turns)
