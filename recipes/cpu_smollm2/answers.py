# SPDX-License-Identifier: Apache-2.0
"""What the recipe keeps of its runs: answers in `DIR/<ARM>.jsonl.xz`, steps of training in `DIR/<ARM>.steps.jsonl`."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from recipes.cpu_smollm2.build import LEVEL
from recipes.cpu_study.origin import code_origin, run_origin, splits
from verl_kernel.bench.validation import read_rows
from verl_kernel.errors import DataError
from verl_kernel.figures.attempts import attempt_of
from verl_kernel.files import read_objects
from verl_kernel.reporting.steps import COLUMNS, Step, earlier, read_steps

Row = dict[str, Any]
ARMS = ("before", "trloo", "rsft")
CURVE = {
    **{name: COLUMNS[name] for name in ("reward", "correct", "fast@1.2", "coverage", "hacks")},
    "novel (correct)": "kernel/novel_correct",
}
"""Figures of a step by their metrics."""
_ANSWERS, _STEPS = ".jsonl.xz", ".steps.jsonl"


def in_order(names: set[str], known: Sequence[str]) -> list[str]:
    """Return the names in the order of `known`, then all others."""
    return sorted(names, key=lambda name: (known.index(name) if name in known else len(known), name))


def keep(folder: Path, arm: str, validations: Sequence[Path]) -> None:
    """Write an arm's answers, each with the origin of its run, and the steps of its training (raises DataError)."""
    rows = [row for path in validations for row in _answers(path)]
    steps = [step for path in validations for step in _steps(path)]
    folder.mkdir(parents=True, exist_ok=True)
    with lzma.open(folder / f"{arm}{_ANSWERS}", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    if steps:
        (folder / f"{arm}{_STEPS}").write_text("".join(json.dumps(step) + "\n" for step in steps), encoding="utf-8")


def _answers(validation: Path) -> Iterator[Row]:
    lines = list(read_rows(validation))
    run = validation.resolve().parents[1]
    origin, split = {**code_origin(), **run_origin(run)}, splits(run)
    for line in lines:
        turn = line.turns[-1]
        judged = attempt_of(turn.result, sample=line.sample, tokens=turn.tokens, novelty=turn.novelty)
        where = split.get(judged.task, f"KernelBench level {LEVEL}")
        yield {**origin, "split": where, **asdict(judged), "answer": line.output}


def _steps(validation: Path) -> Iterator[Step]:
    """Yield the figures of each step of a validation's run; none of a run that did not train."""
    metrics = validation.resolve().parents[1] / "metrics.jsonl"
    if metrics.is_file() or earlier(metrics).is_file():
        for step in read_steps(metrics):
            yield {"step": step["step"], **{key: step[key] for key in CURVE.values() if key in step}}


def read_arms(folder: Path) -> dict[str, list[Row]]:
    """Return the kept answers by arm (raises DataError)."""
    names = in_order({path.name.removesuffix(_ANSWERS) for path in folder.glob(f"*{_ANSWERS}")}, ARMS)
    if not names:
        raise DataError(f"{folder} holds no answers: name validations, as before=RUN/validation/0.jsonl")
    return {name: _read(folder / f"{name}{_ANSWERS}") for name in names}


def _read(path: Path) -> list[Row]:
    try:
        with lzma.open(path, "rt", encoding="utf-8") as file:
            return [json.loads(line) for line in file]
    except (OSError, ValueError, lzma.LZMAError) as exc:
        raise DataError(f"{path} holds no answers that were kept ({exc}): keep the validation again") from exc


def read_curves(folder: Path, arms: Sequence[str]) -> dict[str, list[Step]]:
    """Return the kept steps of the arms that were trained."""
    files = {arm: folder / f"{arm}{_STEPS}" for arm in arms}
    return {arm: list(read_objects(path)) for arm, path in files.items() if path.is_file()}
