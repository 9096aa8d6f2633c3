# SPDX-License-Identifier: Apache-2.0
from tests.bench.page.runs import answer, right
from verl_kernel.bench.page.overview import all_figures, by_group, headlines, pass_at_k
from verl_kernel.bench.scores import attempt
from verl_kernel.figures.attempts import Asked
from verl_kernel.figures.scoring import score

TURNS = [
    right("t1", level=1, family="a", speedup=1.5),
    answer("t1", sample=1, level=1, family="a"),
    answer("t2", level=2, family="b"),
    answer("t2", sample=1, level=2, family="b"),
]


def scored(turns):
    attempts = [attempt(one) for one in turns]
    return score(attempts, Asked.of(attempts))


def test_headlines_name_figure_and_view():
    rows = {(row.name, row.meaning): row.cells[0][0] for row in headlines(scored(TURNS))}
    assert rows["correct", "last turn"] == rows["fast@1.2", "best of history"] == "25%"
    assert rows["speedup (all)", "best of history"] == "1.11x"


def test_figures_that_nothing_is_known_of_are_left_out():
    names = [row.name for row in all_figures(scored(TURNS))]
    assert "fast@2" in names
    assert "roofline" not in names


def test_groups_are_those_that_the_run_has():
    level, family = by_group(scored(TURNS))
    assert (level.title, [row.name for row in level.rows]) == ("level", ["1", "2"])
    assert (family.title, [row.cells[0][0] for row in family.rows]) == ("family", ["50%", "0%"])
    plain = [one.model_copy(update={"level": None, "family": None}) for one in TURNS]
    assert by_group(scored(plain)) == []
    assert [table.title for table in by_group(scored([*plain, answer("t2", turn=2)]))] == ["turn"]


def test_pass_at_k_needs_several_samples():
    table = pass_at_k(scored(TURNS))
    assert table.columns == ("k = 1", "k = 2")
    assert {row.name: [text for text, _ in row.cells] for row in table.rows}["correct"] == ["25%", "50%"]
    assert pass_at_k(scored(TURNS[::2])).rows == ()
