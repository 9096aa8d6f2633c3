# SPDX-License-Identifier: Apache-2.0
"""A run's report as one HTML page that loads nothing else: it contains curves, style and sources.

Over the legend's entry of each curve appears the metric's own name. An untrusted policy wrote the kernels: everything
put into the page is escaped, and the page runs no script.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from verl_kernel.reporting import pages
from verl_kernel.reporting.charts import Chart, Curve, Kind, Point, chart, round_marks
from verl_kernel.reporting.kernels import best_kernels, read_kernels
from verl_kernel.reporting.steps import COLUMNS, Step, cell, series, step_rows
from verl_kernel.reporting.summary import before_and_after, first_and_last, headlines, run_facts, timing_source, window

_MOST_TURNS = 16
"""Turns whose metrics the panels draw."""
_TONES = (2, 1, 3, 4, 5, 6)
"""Colours of a panel's lines, in order."""
_VALIDATION = "validation:"
_Line = tuple[str, str, Kind, list[tuple[int, float]]]
"""Metric, name, kind and points."""
KERNELS_SHOWN = 10
"""Largest number of kernels on the page."""


@dataclass(frozen=True)
class Panel:
    """The metrics that one panel draws.

    In a metric's name, `{}` is replaced by each turn's number; the prefix `validation:` marks a figure of the
    validation, which is drawn for each data source.
    """

    title: str
    lines: dict[str, str]
    """Maps a metric to its name in the legend."""
    shares: bool = True


PANELS = (
    Panel(
        "Reward",
        {"critic/score/mean": "trajectory", "kernel/turn_{}/reward/mean": "turn {}", "validation:reward": "validation"},
        shares=False,
    ),
    Panel(
        "Correct",
        {
            "kernel/correct_rate": "all turns",
            "kernel/turn_{}/correct_rate": "turn {}",
            "kernel/best/correct_rate": "best turn",
            "validation:acc": "validation, last turn",
        },
    ),
    Panel(
        "Correct and 1.2 times as fast (fast@1.2)",
        {
            "kernel/fast@1.2": "all turns",
            "kernel/fast@1.2_sure": "all turns, surely",
            "kernel/turn_{}/fast@1.2": "turn {}",
            "kernel/best/fast@1.2": "best turn",
            "validation:last_turn_fast@1.2": "validation, last turn",
        },
    ),
    Panel(
        "Time coverage of correct kernels",
        {"kernel/time_coverage/mean": "all turns", "kernel/turn_{}/time_coverage/mean": "turn {}"},
    ),
    Panel(
        "Novel: not in the cold start",
        {
            "kernel/novel": "programs",
            "kernel/novel_bytes": "programs, by bytes",
            "kernel/novel_correct": "correct programs",
            "kernel/novel_best": "best kernels of tasks",
            "validation:novel_correct": "validation, correct programs",
        },
    ),
    Panel(
        "Hacks and decoys",
        {"kernel/hack_rate": "either", "kernel/decoy_rate": "decoys", "kernel/hacked_rate": "hacks"},
    ),
    Panel(
        "Left out of the gradient",
        {
            "prs/rejected_fraction": "turns, by PRS",
            "groups/zero_gradient_fraction": "groups without one",
            "rollout_corr/rollout_rs_masked_fraction": "tokens, by mismatch",
        },
    ),
    Panel("Entropy", {"actor/entropy": "actor"}, shares=False),
    Panel(
        "Mismatch of vLLM and trainer",
        {"training/rollout_probs_diff_mean": "difference of a token's probability"},
        shares=False,
    ),
    Panel(
        "Seconds",
        {"timing_s/step": "step", "timing_s/gen": "generation", "kernel/gym_seconds/mean": "a trajectory's judging"},
        shares=False,
    ),
)


def run_charts(steps: Sequence[Step], validations: Sequence[Step]) -> list[Chart]:
    """Return the panels that have something to show."""
    return [panel_chart for panel in PANELS if (panel_chart := _chart(panel, steps, validations)).lines]


def _chart(panel: Panel, steps: Sequence[Step], validations: Sequence[Step]) -> Chart:
    lines = [line for key, name in panel.lines.items() for line in _lines(key, name, steps, validations)]
    distinct = [line for number, line in enumerate(lines) if not _is_redundant_bound(line, lines[:number])]
    curves = [_curve(line, number, distinct[:number]) for number, line in enumerate(distinct)]
    numbers = [point.x for curve in curves for point in curve.points]
    marks = round_marks(min(numbers), max(numbers), whole=True) if numbers else []
    return chart(panel.title, "step", curves, marks, shares=panel.shares)


def _lines(key: str, name: str, steps: Sequence[Step], validations: Sequence[Step]) -> Iterator[_Line]:
    """Yield the lines of a metric that have points."""
    lines: Iterator[_Line]
    if key.startswith(_VALIDATION):
        lines = _validation_lines(key.removeprefix(_VALIDATION), name, validations)
    elif "{}" in key:
        turns = range(1, _MOST_TURNS + 1)
        lines = ((key.format(n), name.format(n), "line", series(steps, key.format(n))) for n in turns)
    else:
        lines = iter([(key, name, "line", series(steps, key))])
    return (line for line in lines if line[-1])


def _validation_lines(figure: str, name: str, validations: Sequence[Step]) -> Iterator[_Line]:
    """Yield a figure for each data source; validations are far apart, so no line connects them."""
    keys = dict.fromkeys(
        key for validation in validations for key in validation if key.rpartition("/")[2] == figure and "/" in key
    )
    for key in keys:
        source = f" ({key.rpartition('/')[0]})" if len(keys) > 1 else ""
        yield key, name + source, "points", series(validations, key)


def _is_redundant_bound(line: _Line, earlier: Sequence[_Line]) -> bool:
    """Whether a lower bound equals the value itself, as on a simulated clock."""
    return line[0].endswith("_sure") and _repeats(line, earlier)


def _repeats(line: _Line, earlier: Sequence[_Line]) -> bool:
    return any(line[-1] == previous[-1] for previous in earlier)


def _curve(line: _Line, number: int, earlier: Sequence[_Line]) -> Curve:
    """Return the line in its colour; dashed if it would hide an equal one."""
    key, name, kind, points = line
    hides = kind == "line" and _repeats(line, earlier)
    return Curve(name, _points(name, points), "dashed" if hides else kind, _TONES[number % len(_TONES)], key)


def _points(name: str, points: Sequence[tuple[int, float]]) -> list[Point]:
    return [Point(step, value, f"{name}, step {step}: {value:.4g}") for step, value in points]


def write_page(folder: Path, steps: Sequence[Step], validations: Sequence[Step]) -> Path:
    """Write `report.html` into a run's folder.

    Args:
        folder: the run; `kernels.jsonl` and `.hydra/config.yaml` in it are used if they exist.
        steps: training steps.
        validations: the result of `steps.read_validations`.

    Returns:
        The page's path.

    Raises:
        OSError: the page cannot be written; an older one stays.
    """
    environment = pages.page_environment("verl_kernel.reporting")
    environment.filters["cell"] = cell
    changes = first_and_last(steps)
    kernels = best_kernels(read_kernels(folder / "kernels.jsonl"))
    compared = [kernel["novel"] for kernel in kernels if isinstance(kernel.get("novel"), bool)]
    page = environment.get_template("report.html").render(
        name=folder.resolve().name,
        clock=timing_source(steps),
        facts=run_facts(folder, steps),
        window=window(steps),
        headlines=headlines(changes),
        training=[change.cells for change in changes],
        validation=[change.cells[: 4 if len(validations) > 1 else 2] for change in before_and_after(validations)],
        validated=[validation["step"] for validation in validations],
        charts=run_charts(steps, validations),
        kernels=kernels[:KERNELS_SHOWN],
        novel=sum(compared),
        compared=len(compared),
        columns=["step", *COLUMNS],
        rows=step_rows(steps),
    )
    return pages.write_page(folder / "report.html", page)
