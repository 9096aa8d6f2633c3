# SPDX-License-Identifier: Apache-2.0
import pytest

from tests.bench.page.runs import answer, right
from verl_kernel.bench.page.overview import charts
from verl_kernel.bench.scores import attempt
from verl_kernel.figures.attempts import Asked
from verl_kernel.figures.scoring import score
from verl_kernel.reporting.charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH


def scored(*turns):
    attempts = [attempt(one) for one in turns]
    return score(attempts, Asked.of(attempts))


def test_lines_go_through_the_figures_of_each_turn():
    correct, fast = charts(scored(right("t1"), answer("t1", turn=2), answer("t2"), right("t2", turn=2, speedup=1.0)))
    assert (correct.title, fast.title) == ("correct, over turns", "fast@1.2, over turns")
    last, best = correct.lines
    assert [dot.text.partition(" (")[0] for dot in last.dots] == ["last turn: 50%"] * 2
    assert [dot.text.partition(" (")[0] for dot in best.dots] == ["best of history: 50%", "best of history: 100%"]
    assert best.dots[1].y == TOP
    assert (best.dots[0].x, best.dots[1].x) == (LEFT, WIDTH - RIGHT)
    middle = (TOP + HEIGHT - BOTTOM) / 2
    assert best.dots[0].y == pytest.approx(middle)
    assert best.path == f"{LEFT:g},{middle:g} {WIDTH - RIGHT:g},{TOP:g}"
    assert len(best.band.split()) == 4
    assert correct.band == fast.band == "band: 95 % interval over tasks"
    assert [dot.text.partition(" (")[0] for dot in fast.lines[1].dots] == ["best of history: 50%"] * 2


def test_the_axis_ends_above_every_interval():
    turns = [
        one
        for n in range(10)
        for one in (answer(f"t{n}"), right(f"t{n}", turn=2) if n == 0 else answer(f"t{n}", turn=2))
    ]
    (correct, _) = charts(scored(*turns))
    assert correct.y_marks[-1].text in ("20%", "40%")
    assert min(dot.y for dot in correct.lines[0].dots) > TOP


def test_tokens_have_a_curve_where_all_are_known():
    turns = [
        answer("t1", prompt_tokens=100, completion_tokens=20),
        right("t1", turn=2, prompt_tokens=300, completion_tokens=20),
    ]
    *_, tokens = charts(scored(*turns))
    assert tokens.title == "fast@1.2, over tokens"
    assert [mark.text for mark in tokens.x_marks] == ["0", "200", "400"]  # round numbers, where the line ends at 440
    assert tokens.lines[0].band == tokens.band == ""  # one task has no interval
    assert len(charts(scored(turns[0], right("t1", turn=2)))) == 2


def test_of_two_equal_lines_the_upper_one_is_dashed():
    correct, _ = charts(scored(right("t1"), right("t1", turn=2), right("t2"), right("t2", turn=2)))
    below, above = correct.drawn
    assert below.path == above.path
    assert (below.kind, above.kind) == ("line", "dashed")
    assert (below.name, above.name) == ("best of history", "last turn")


def test_one_turn_has_no_curves():
    assert charts(scored(right("t1"), answer("t2"))) == []


def test_many_turns_have_few_marks():
    correct, _ = charts(scored(*(right("t1", turn=turn) for turn in range(1, 33))))
    assert [mark.text for mark in correct.x_marks] == ["1", "5", "9", "13", "17", "21", "25", "29"]
