# SPDX-License-Identifier: Apache-2.0
from tests.bench.page.runs import answer, right
from verl_kernel.bench.page.task_rows import task_rows
from verl_kernel.env import EvalStatus
from verl_kernel.figures.attempts import Asked, AskedTask

ASKED = Asked((AskedTask("t1", 2, "softmax"), AskedTask("t2")), samples=2, turns=2)


def test_a_row_tells_the_best_answer_and_counts_the_others():
    turns = [
        right(sample=1, turn=2, speedup=1.25, time_coverage=0.5, speedup_low=1.1),
        right(sample=0, turn=2, speedup=1.5, speedup_low=0.9),
        answer(sample=0, turn=1),
        answer(sample=1, turn=1, status=EvalStatus.UNSAFE),
    ]
    row, _ = task_rows(ASKED, turns)
    assert (row.level, row.family, row.status, row.chosen) == (2, "softmax", "ok", (1, 2))
    assert (row.speedup, row.sure, row.right, row.samples, row.first_right) == (1.25, 1.1, 2, 2, 2)
    assert (row.kernel_ms, row.reference_ms, row.coverage) == (0.01, 0.0125, 0.5)
    assert row.counts == {"ok": 2, "incorrect": 1, "unsafe": 1}
    assert [(one.sample, one.turn) for one in row.answers] == [(0, 1), (0, 2), (1, 1), (1, 2)]


def test_a_task_without_an_answer_has_a_row():
    _, row = task_rows(ASKED, [])
    assert (row.status, row.answers, row.chosen, row.counts, row.speedup) == ("missing", (), None, {}, None)


def test_times_of_a_wrong_kernel_are_not_those_of_the_task():
    row, _ = task_rows(ASKED, [right(correctness=False, status=EvalStatus.INCORRECT)])
    assert row.kernel_ms is None
    assert row.reference_ms == 0.015
    assert row.right == 0
