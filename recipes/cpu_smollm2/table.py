# SPDX-License-Identifier: Apache-2.0
"""`python -m recipes.cpu_smollm2.table DIR [NAME=RUN/validation/STEP.jsonl ...]`: keep answers, and compare them.

DIR keeps what each validation holds, and the steps of its run, under the arm's name (`answers.py`). `DIR/table.md` is
made of all arms that it keeps: `before`, `trloo`, `rsft`, and any other. Intervals are over tasks and samples
(`figures.bootstrap`), paired by task; they say nothing of other seeds, since each arm is one run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from recipes.cpu_smollm2.answers import CURVE, Row, in_order, keep, read_arms, read_curves
from recipes.cpu_study.origin import KEYS
from verl_kernel.commands.sentences import guarded
from verl_kernel.errors import DataError
from verl_kernel.figures.attempts import Attempt
from verl_kernel.figures.bootstrap import Bootstrap
from verl_kernel.figures.comparison import difference
from verl_kernel.figures.figures import ratio
from verl_kernel.figures.record import Estimate
from verl_kernel.generated_tasks.kinds import SPLITS
from verl_kernel.reporting.steps import Step

FIGURES = ("correct", "compiled", "fast@1.2", "hacking", "novel (correct)")
PAIRS = (("before", "trloo"), ("before", "rsft"), ("rsft", "trloo"))
"""Arms whose difference is shown: the second less the first."""
WINDOW = 4
"""Steps whose mean is a line of the curve: one step holds too few prompts."""
app = typer.Typer(add_completion=False)


@app.command()
@guarded
def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of kept answers, and of table.md.")],
    validations: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=FILE", help="Validations of runs, by the names of their arms.")
    ] = None,
) -> None:
    """Keep the answers of validations, and compare all that are kept."""
    named: dict[str, list[Path]] = {}
    for text in validations or []:
        name, equals, file = text.partition("=")
        if not name or not equals:
            raise DataError(f"{text} is no NAME=FILE: write before=RUN/validation/0.jsonl")
        named.setdefault(name, []).append(Path(file))
    for name, files in named.items():
        keep(folder, name, files)
    (folder / "table.md").write_text(table(folder), encoding="utf-8")


def table(folder: Path) -> str:
    """Return what a folder keeps as tables in Markdown (raises DataError)."""
    arms = read_arms(folder)
    splits = in_order({row["split"] for rows in arms.values() for row in rows}, SPLITS)
    curves = read_curves(folder, list(arms))
    parts = [figures(arms, splits), _verdicts(arms, splits), _origins(arms)]
    if curves:
        parts.insert(2, _curve(curves))
    return "\n".join("\n".join([*part, ""]) for part in parts)


def figures(arms: Mapping[str, Sequence[Row]], splits: Sequence[str]) -> Iterator[str]:
    """Yield a table of the arms' figures by split, and of their differences."""
    pairs = [pair for pair in PAIRS if set(pair) <= set(arms)]
    yield from _head("split", "tasks", "figure", *arms, *(f"{second} - {first}" for first, second in pairs))
    for split in splits:
        found = {arm: _attempts(rows, split) for arm, rows in arms.items()}
        tasks = sorted({one.task for answers in found.values() for one in answers})
        for figure in FIGURES:
            ratios = {arm: ratio(figure, answers, tasks) for arm, answers in found.items()}
            shown = [_value(Bootstrap().estimates({figure: one})[figure]) for one in ratios.values()]
            changes = [
                difference(figure, "last turn", ratios[first], ratios[second], Bootstrap()) for first, second in pairs
            ]
            yield _line(split, len(tasks), figure, *shown, *(_value(one.difference, "+") for one in changes))


def _attempts(rows: Sequence[Row], split: str) -> list[Attempt]:
    names = [one.name for one in fields(Attempt)]
    return [Attempt(**{name: row[name] for name in names if name in row}) for row in rows if row["split"] == split]


def _value(one: Estimate, sign: str = "") -> str:
    if one.value is None:
        return "-"
    interval = "" if one.low is None or one.high is None else f" ({one.low:{sign}.3f} to {one.high:{sign}.3f})"
    return f"{one.value:{sign}.3f}{interval}"


def _verdicts(arms: Mapping[str, Sequence[Row]], splits: Sequence[str]) -> Iterator[str]:
    """Yield a table of the verdicts: how many answers of each arm and split have each status."""
    counts = {(arm, split): Counter(row["status"] for row in rows if row["split"] == split)
              for arm, rows in arms.items() for split in splits}  # fmt: skip
    statuses = sorted({status for found in counts.values() for status in found})
    yield from _head("verdicts", "split", *statuses)
    for (arm, split), found in counts.items():
        yield _line(arm, split, *(found[status] for status in statuses))


def _curve(curves: Mapping[str, Sequence[Step]]) -> Iterator[str]:
    """Yield a table of the training steps of each arm, means of `WINDOW` steps."""
    yield from _head("training", "steps", *CURVE)
    for arm, steps in curves.items():
        for first in range(0, len(steps), WINDOW):
            part = steps[first : first + WINDOW]
            shown = (_mean([step[key] for step in part if key in step]) for key in CURVE.values())
            yield _line(arm, f"{part[0]['step']} to {part[-1]['step']}", *shown)


def _mean(values: Sequence[float]) -> str:
    return f"{sum(values) / len(values):.3g}" if values else "-"


def _origins(arms: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """Yield a line for each run whose answers an arm has."""
    for arm, rows in arms.items():
        for origin in dict.fromkeys(tuple((key, row[key]) for key in KEYS if key in row) for row in rows):
            yield f"- {arm}: " + ", ".join(f"{key} {value}" for key, value in origin)


def _head(*names: str) -> tuple[str, str]:
    return _line(*names), _line(*["---"] * len(names))


def _line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    app()
