# SPDX-License-Identifier: Apache-2.0
"""What stands above the tasks of the page: facts, tables, charts, and a row for each task."""

from math import inf, nan

import pytest

from tests.bench.page.runs import answer, header, right
from verl_kernel.bench.page.overview import all_figures, by_group, charts, headlines, pass_at_k, run_facts
from verl_kernel.bench.page.task_rows import task_rows
from verl_kernel.bench.page.texts import UNKNOWN, VERDICTS, estimate, factor, milliseconds, percent
from verl_kernel.bench.scores import attempt, clock, run_plan
from verl_kernel.env import EvalStatus
from verl_kernel.figures.attempts import PlannedTask, RunPlan
from verl_kernel.figures.record import Estimate
from verl_kernel.figures.scoring import score
from verl_kernel.reporting.charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH


def scored(*turns):
    attempts = [attempt(one) for one in turns]
    return score(attempts, RunPlan.of(attempts))


def facts(turns, head):
    return run_facts(head, score([attempt(one) for one in turns], run_plan(head, [], turns)), turns)


@pytest.mark.parametrize(
    ("turns", "said"),
    [
        ([right()], "simulated: a model of a GPU"),
        ([right(timing_source="cuda_event"), answer()], "measured on a GPU"),
        ([right(timing_source="simulated_unvalidated")], "simulated_unvalidated: a model of a GPU"),
        ([right(timing_source="simulated_unvalidated"), right(turn=2)], "mixed, and not comparable"),
        ([right(timing_source="cuda_event"), right(turn=2)], "mixed, and not comparable"),
        ([answer()], "none"),
    ],
)
def test_the_source_of_times_is_said_plainly(turns, said):
    assert clock(turns).startswith(said)


def test_answers_that_are_lost_or_missing_are_counted():
    turns = [right(), right(turn=2), right(turn=3), answer(sample=1, status=EvalStatus.INFRA_ERROR)]
    found = facts(turns, header(2, samples=2, turns=3))
    assert found["answers"] == (
        "3 judged, 1 lost by the gym (in no figure), 2 samples without any answer (each counts as a failure), "
        "1 samples ended before the last turn"
    )
    assert found["asked for"] == "2 samples a task, 3 turns each"
    assert found["prompts"] == "show the best turns, at most 4 (`top_w`)"


def test_saved_kernels_were_not_sampled():
    assert "sampling" in facts([right()], header(1))
    assert not {"sampling", "prompts"} & set(facts([right()], header(1, source="kernels")))


def test_the_device_names_its_gpu():
    turns = [right(env={"gpu_name": "H200"}, timing_source="cuda_event")]
    assert facts(turns, header(1, device="cuda"))["device"] == "cuda, H200"
    assert facts([right(env={"gpu_profile": "h100"})], header(1))["device"] == "cpu, clock of a simulated h100"


A, B = {"level": 1, "family": "a"}, {"level": 2, "family": "b"}
TURNS = [right("t1", **A), answer("t1", sample=1, **A), answer("t2", **B), answer("t2", sample=1, **B)]


def test_headlines_name_figure_and_view():
    rows = {(row.name, row.meaning): row.cells[0][0] for row in headlines(scored(*TURNS))}
    assert rows["correct", "last turn"] == rows["fast@1.2", "best of history"] == "25%"
    assert rows["speedup (all)", "best of history"] == "1.11x"


def test_figures_that_nothing_is_known_of_are_left_out():
    names = [row.name for row in all_figures(scored(*TURNS))]
    assert "fast@2" in names
    assert "roofline" not in names


def test_groups_are_those_that_the_run_has():
    level, family = by_group(scored(*TURNS))
    assert (level.title, [row.name for row in level.rows]) == ("level", ["1", "2"])
    assert (family.title, [row.cells[0][0] for row in family.rows]) == ("family", ["50%", "0%"])
    plain = [one.model_copy(update={"level": None, "family": None}) for one in TURNS]
    assert by_group(scored(*plain)) == []
    assert [table.title for table in by_group(scored(*plain, answer("t2", turn=2)))] == ["turn"]


def test_pass_at_k_needs_several_samples():
    table = pass_at_k(scored(*TURNS))
    assert table.columns == ("k = 1", "k = 2")
    assert {row.name: [text for text, _ in row.cells] for row in table.rows}["correct"] == ["25%", "50%"]
    assert pass_at_k(scored(*TURNS[::2])).rows == ()


def test_lines_go_through_the_figures_of_each_turn():
    correct, fast = charts(scored(right("t1"), answer("t1", turn=2), answer("t2"), right("t2", turn=2, speedup=1.0)))
    assert (correct.title, fast.title) == ("correct, over turns", "fast@1.2, over turns")
    shown = [[dot.text.partition(" (")[0] for dot in line.dots] for line in (*correct.lines, fast.lines[1])]
    assert shown == [
        ["last turn: 50%"] * 2, ["best of history: 50%", "best of history: 100%"], ["best of history: 50%"] * 2,
    ]  # fmt: skip
    best, middle = correct.lines[1], (TOP + HEIGHT - BOTTOM) / 2
    assert (best.dots[1].y, best.dots[0].y) == (TOP, pytest.approx(middle))
    assert (best.dots[0].x, best.dots[1].x) == (LEFT, WIDTH - RIGHT)
    assert best.path == f"{LEFT:g},{middle:g} {WIDTH - RIGHT:g},{TOP:g}"
    assert len(best.band.split()) == 4
    assert correct.band == fast.band == "band: 95 % interval over tasks"


def test_the_axis_ends_above_every_interval():
    turns = [one(f"t{n}") for n in range(10) for one in (answer, lambda task: answer(task, turn=2))]
    (correct, _) = charts(scored(*turns[2:], answer("t0"), right("t0", turn=2)))
    assert correct.y_marks[-1].text in ("20%", "40%")
    assert min(dot.y for dot in correct.lines[0].dots) > TOP


def test_tokens_have_a_curve_where_all_are_known():
    first = answer("t1", prompt_tokens=100, completion_tokens=20)
    *_, tokens = charts(scored(first, right("t1", turn=2, prompt_tokens=300, completion_tokens=20)))
    assert tokens.title == "fast@1.2, over tokens"
    assert [mark.text for mark in tokens.x_marks] == ["0", "200", "400"]  # round numbers, where the line ends at 440
    assert tokens.lines[0].band == tokens.band == ""  # one task has no interval
    assert len(charts(scored(first, right("t1", turn=2)))) == 2


def test_of_two_equal_lines_the_upper_one_is_dashed():
    correct, _ = charts(scored(right("t1"), right("t1", turn=2), right("t2"), right("t2", turn=2)))
    below, above = correct.back_to_front
    assert below.path == above.path
    assert [(line.kind, line.name) for line in (below, above)] == [("line", "best of history"), ("dashed", "last turn")]


def test_one_turn_has_no_curves_and_many_have_few_marks():
    assert charts(scored(right("t1"), answer("t2"))) == []
    correct, _ = charts(scored(*(right("t1", turn=turn) for turn in range(1, 33))))
    assert [mark.text for mark in correct.x_marks] == ["1", "5", "9", "13", "17", "21", "25", "29"]


ASKED = RunPlan((PlannedTask("t1", 2, "softmax"), PlannedTask("t2")), samples=2, turns=2)


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
    assert (row.kernel_ms, row.reference_ms, row.right) == (None, 0.015, 0)


NUMBERS = [0.00401, 0.9994, 0.9996, 12.345, 999.6, 0.0]
TIMES = ["4.01 µs", "999 µs", "1 ms", "12.3 ms", "1 s", "0 µs"]


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        *((milliseconds(number), text) for number, text in zip(NUMBERS, TIMES, strict=True)),
        *((show(value), UNKNOWN) for show in (factor, percent, milliseconds) for value in (None, nan, inf)),
        (estimate(Estimate(value=0.5, low=0.25, high=0.754), is_factor=False), ("50%", "25 to 75")),
        (estimate(Estimate(value=1.5, low=1.25, high=2.0), is_factor=True), ("1.50x", "1.25 to 2.00")),
        (estimate(Estimate(value=None), is_factor=False), (UNKNOWN, "")),
    ],
)
def test_a_number_has_the_unit_that_suits_it_or_is_a_dash(shown, text):
    assert shown == text


def test_every_status_has_a_colour_and_words():
    assert set(EvalStatus) < set(VERDICTS)
