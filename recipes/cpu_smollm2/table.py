# SPDX-License-Identifier: Apache-2.0
"""`python -m recipes.cpu_smollm2.table DIR [NAME=RUN/validation/STEP.jsonl ...]`: keep answers, and compare them.

Each validation that is named becomes `DIR/<NAME>.jsonl.xz`, a line an answer. `DIR/table.md` is made of all that are
kept: `before`, `trloo`, `rsft`, and any other. Intervals are over tasks and samples (`figures.bootstrap`), paired by
task; they say nothing of other seeds, since each arm is one run.
"""

from __future__ import annotations

import json
import lzma
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from recipes.cpu_smollm2.build import LEVEL
from recipes.cpu_study.origin import KEYS, code_origin, run_origin, splits
from verl_kernel.bench.validation import read_rows
from verl_kernel.commands.sentences import guarded
from verl_kernel.errors import DataError
from verl_kernel.figures.attempts import Attempt, attempt_of
from verl_kernel.figures.bootstrap import Bootstrap
from verl_kernel.figures.comparison import difference
from verl_kernel.figures.figures import ratio
from verl_kernel.figures.record import Estimate
from verl_kernel.world.kinds import SPLITS

Row = dict[str, Any]
FIGURES = ("correct", "compiled", "fast@1.2", "hacking", "novel (correct)")
ARMS = ("before", "trloo", "rsft")
PAIRS = (("before", "trloo"), ("before", "rsft"), ("rsft", "trloo"))
"""Arms whose difference is shown: the second less the first."""
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
        keep(files, folder / f"{name}.jsonl.xz")
    arms = read_arms(folder)
    (folder / "table.md").write_text(table(arms), encoding="utf-8")


def keep(validations: Sequence[Path], out: Path) -> None:
    """Write the answers of an arm's validations, with the origin of the run that made each (raises DataError)."""
    rows = [row for path in validations for row in _answers(path)]
    out.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(out, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def _answers(validation: Path) -> Iterator[Row]:
    lines = list(read_rows(validation))
    run = validation.resolve().parents[1]
    origin, split = {**code_origin(), **run_origin(run)}, splits(run)
    for line in lines:
        turn = line.turns[-1]
        judged = attempt_of(turn.result, sample=line.sample, tokens=turn.tokens, novelty=turn.novelty)
        where = split.get(judged.task, f"KernelBench level {LEVEL}")
        yield {**origin, "split": where, **asdict(judged), "answer": line.output}


def read_arms(folder: Path) -> dict[str, list[Row]]:
    """Return the kept answers by arm (raises DataError)."""
    names = _sorted({path.name.partition(".")[0] for path in folder.glob("*.jsonl.xz")}, ARMS)
    if not names:
        raise DataError(f"{folder} holds no answers: name validations, as before=RUN/validation/0.jsonl")
    return {name: _read(folder / f"{name}.jsonl.xz") for name in names}


def _sorted(names: set[str], known: Sequence[str]) -> list[str]:
    """Return the names in the order of `known`, then all others."""
    return sorted(names, key=lambda name: (known.index(name) if name in known else len(known), name))


def _read(path: Path) -> list[Row]:
    try:
        with lzma.open(path, "rt", encoding="utf-8") as file:
            return [json.loads(line) for line in file]
    except (OSError, ValueError, lzma.LZMAError) as exc:
        raise DataError(f"{path} holds no answers that were kept ({exc}): keep the validation again") from exc


def table(arms: dict[str, list[Row]]) -> str:
    """Return the figures of every arm by split, the differences of pairs of arms, and the verdicts, as Markdown."""
    names = _sorted({row["split"] for rows in arms.values() for row in rows}, SPLITS)
    pairs = [pair for pair in PAIRS if set(pair) <= set(arms)]
    head = ["split", "tasks", "figure", *arms, *(f"{second} - {first}" for first, second in pairs)]
    lines = [_line(head), _line(["---"] * len(head))]
    for name in names:
        found = {arm: _attempts(rows, name) for arm, rows in arms.items()}
        tasks = sorted({one.task for answers in found.values() for one in answers})
        for figure in FIGURES:
            ratios = {arm: ratio(figure, answers, tasks) for arm, answers in found.items()}
            shown = [_value(Bootstrap().estimates({figure: one})[figure]) for one in ratios.values()]
            changes = [
                difference(figure, "last turn", ratios[first], ratios[second], Bootstrap()) for first, second in pairs
            ]
            lines.append(
                _line([name, str(len(tasks)), figure, *shown, *(_value(one.difference, "+") for one in changes)])
            )
    return "\n".join([*lines, "", *_verdicts(arms, names), "", *_origins(arms), ""])


def _attempts(rows: Sequence[Row], split: str) -> list[Attempt]:
    names = [one.name for one in fields(Attempt)]
    return [Attempt(**{name: row[name] for name in names}) for row in rows if row["split"] == split]


def _value(one: Estimate, sign: str = "") -> str:
    if one.value is None:
        return "-"
    interval = "" if one.low is None or one.high is None else f" ({one.low:{sign}.3f} to {one.high:{sign}.3f})"
    return f"{one.value:{sign}.3f}{interval}"


def _verdicts(arms: dict[str, list[Row]], names: Sequence[str]) -> Iterator[str]:
    """Yield a table of the verdicts: how many answers of each arm and split have each status."""
    counts = {(arm, name): Counter(row["status"] for row in rows if row["split"] == name)
              for arm, rows in arms.items() for name in names}  # fmt: skip
    statuses = sorted({status for found in counts.values() for status in found})
    yield _line(["verdicts", "split", *statuses])
    yield _line(["---"] * (2 + len(statuses)))
    for (arm, name), found in counts.items():
        yield _line([arm, name, *(str(found[status]) for status in statuses)])


def _origins(arms: dict[str, list[Row]]) -> Iterator[str]:
    """Yield a line for each run whose answers an arm has."""
    for arm, rows in arms.items():
        for origin in dict.fromkeys(tuple((key, row[key]) for key in KEYS if key in row) for row in rows):
            yield f"- {arm}: " + ", ".join(f"{key} {value}" for key, value in origin)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    app()
