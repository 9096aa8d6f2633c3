# SPDX-License-Identifier: Apache-2.0
"""Tables say every figure with its convention, and what stands beside the figures."""

from rich.console import Console

from verl_kernel.bench.score_tables import MAIN, all_tables, cell, conventions, main_table, notes
from verl_kernel.figures.attempts import Asked, Attempt
from verl_kernel.figures.figures import FIGURES
from verl_kernel.figures.record import Estimate
from verl_kernel.figures.scoring import score


def shown(attempts, asked=None):
    scores = score(attempts, asked or Asked.of(attempts))
    console = Console(width=240, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for table in all_tables(scores, "run [1]"):
        console.print(table)
    return console.export_text(), [*notes(scores), *conventions()]


def answers(tasks=3, samples=2, turns=2, **fields):
    return [
        Attempt(f"t{task}", sample, turn, "ok", task > 0, True, 1.5 if task else None, **fields, level=task % 2)
        for task in range(tasks)
        for sample in range(samples)
        for turn in range(1, turns + 1)
    ]


def test_every_figure_is_shown_with_its_convention():
    text, beside = shown(answers())
    assert "run [1]" in text
    assert all(name in text for name in FIGURES)
    assert "by turn" in text
    assert "by level" in text
    assert "by family" not in text
    assert "pass@2" in text
    assert "0.667 [0.000, 1.000]" in text
    assert "1.500x [1.500, 1.500]" in text
    assert any("KernelBench's fast_p" in note for note in beside)
    assert any("2000 resamples, seed 0" in note for note in beside)


def test_five_figures_are_shown_where_nobody_asks_for_all():
    attempts = answers(turns=1)
    table = main_table(score(attempts, Asked.of(attempts)), "run")
    assert [column.header for column in table.columns] == ["figure", "score"]
    assert list(table.columns[0].cells) == list(MAIN)
    assert len(MAIN) == 5
    assert set(MAIN) <= set(FIGURES)
    attempts = answers()
    table = main_table(score(attempts, Asked.of(attempts)), "run")
    assert [column.header for column in table.columns] == ["figure", "last turn", "best of history"]
    assert [next(iter(column.cells)) for column in table.columns[1:]] == ["0.667 [0.000, 1.000]"] * 2


def test_what_did_not_happen_is_not_mentioned():
    attempts = answers()
    counts, brackets = notes(score(attempts, Asked.of(attempts)))
    assert counts == "3 tasks x 2 samples x 2 turns: 12 answers"
    assert brackets.startswith("brackets: ")


def test_one_task_turn_and_sample_leave_out_what_says_nothing():
    text, _ = shown(answers(tasks=1, samples=1, turns=1))
    assert not any(part in text for part in ("by turn", "by level", "pass@"))
    assert "-" in text  # no correct answer has a speedup


def test_what_is_missing_and_lost_is_said():
    attempts = [Attempt("a", 0, 1, "infra_error", correct=False), Attempt("a", 1, 1, "ok", correct=True)]
    text, beside = shown(attempts, Asked(Asked.of(attempts).tasks, samples=3))
    assert "2 (1, 1)" in text
    assert beside[0].startswith("1 tasks x 3 samples x 1 turns: 2 answers; 1 samples have none and count as failures")
    assert beside[1].startswith("1 answers were lost")
    assert "0.333 of all samples" in beside[1]


def test_cells():
    assert cell("correct", Estimate(value=None)) == "-"
    assert cell("correct", Estimate(value=0.5)) == "0.500"
    assert cell("speedup (all)", Estimate(value=1.25, low=1.0, high=2.0)) == "1.250x [1.000, 2.000]"
    assert cell("correct", Estimate(value=0.1, low=-0.1, high=0.2), signed=True) == "+0.100 [-0.100, +0.200]"
