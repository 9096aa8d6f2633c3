# SPDX-License-Identifier: Apache-2.0
"""Keep what the scores of a bench are made of, and the table of all kept runs.

python -m benchmarks.kept_runs [RUN NAME]: adds a run's folder to data/bench, if one is named, and writes the table.
"""

from __future__ import annotations

import sys
from pathlib import Path

from verl_kernel.bench.records import read_run, read_tasks
from verl_kernel.bench.score_tables import cell
from verl_kernel.bench.scores import clock, score_run
from verl_kernel.figures.record import Scores, View

KEPT = Path(__file__).parents[1] / "data" / "bench" / "quickstart"
VIEWS: tuple[View, ...] = ("last turn", "best of history")
FIGURES = ("correct", "fast@1.2", "speedup (all)")
_RESULT = {
    *("task_id", "status", "compiled", "correctness", "decoy_kernel", "speedup", "speedup_low", "timing_source"),
    *("time_coverage", "task_flags"),
}
"""What is kept of a verdict: no times of single launches, no message. Texts of answers are left out too."""
_TURN = {
    *("task_id", "task_hash", "sample", "turn", "reward", "failure", "prompt_tokens", "completion_tokens"),
    *("level", "family"),
}


def keep(run: Path, name: str) -> None:
    """Write a run's folder with short lines."""
    header, turns = read_run(run)
    folder = KEPT / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(header.model_dump_json(indent=2) + "\n")
    tasks = [one.model_dump_json(exclude={"reference"}) for one in read_tasks(run)]
    (folder / "tasks.jsonl").write_text("\n".join(tasks) + "\n")
    ordered = sorted(turns, key=lambda one: (one.task_id, one.sample, one.turn))
    include = {**dict.fromkeys(_TURN, True), "result": _RESULT}
    lines = [one.model_dump_json(include=include, exclude_defaults=True) for one in ordered]
    (folder / "turns.jsonl").write_text("\n".join(lines) + "\n")


def table() -> str:
    """Every kept run: by turn and view, and the best of k independent samples."""
    parts = [
        "# Kept runs",
        "",
        "Written by `benchmarks/kept_runs.py` from the folders beside it. Brackets: 95 % intervals by task.",
    ]
    for folder in sorted(one for one in KEPT.iterdir() if one.is_dir()):
        header, scores = score_run(folder)
        head = f"{scores.tasks} tasks, {scores.samples} samples, {scores.turns} turns, context {header.context}"
        times = clock(read_run(folder)[1])
        parts += ["", f"## {folder.name}", "", f"{head}, started {header.started}; times {times}", "", *_rows(scores)]
    return "\n".join(parts) + "\n"


def _rows(scores: Scores) -> list[str]:
    rows = ["| turn | view | correct | fast@1.2 | speedup (all) | tokens |", "|---|---|---|---|---|---|"]
    for number, views in enumerate(scores.by_turn, 1):
        for view in VIEWS if number > 1 else VIEWS[:1]:
            cells = [cell(name, views.view(view).values[name]) for name in FIGURES]
            rows.append(f"| {number} | {view} | {' | '.join(cells)} | {views.tokens or 0:.0f} |")
    found = [one for one in scores.passes if one.view == "last turn" and one.criterion in FIGURES]
    if scores.turns == 1 and found:
        rows += ["", "| best of k samples | criterion | share of tasks |", "|---|---|---|"]
        rows += [f"| {one.k} | {one.criterion} | {cell('pass', one.estimate)} |" for one in found]
    return rows


if __name__ == "__main__":
    if len(sys.argv) == 3:
        keep(Path(sys.argv[1]), sys.argv[2])
    (KEPT / "table.md").write_text(table())
