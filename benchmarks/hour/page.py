# SPDX-License-Identifier: Apache-2.0
"""`page.md`: how each step of the hour ended, what did not hold, and the figures beside the published ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.gpu.report import JSON, table
from benchmarks.hour.steps import Step, result_of

if TYPE_CHECKING:
    from verl_kernel.bench.records import BenchTurn, RunHeader

FILE = "page.md"
SOURCE = (
    "Published: Dr. Kernel (arXiv 2602.05885), table 1: level 2 of KernelBench, 100 tasks, 8 samples of 3 turns, times "
    "of an H100 over eager PyTorch. STTS: its sequential test-time scaling, more turns over the best earlier ones."
)
PUBLISHED = (
    {"model": "Dr. Kernel 14B", "answers": "turn 3", "fast@1": "49.2", "fast@1.2": "25.6"},
    {"model": "Dr. Kernel 14B, STTS", "answers": "last turn", "fast@1": "59.8", "fast@1.2": "31.6"},
    {"model": "Dr. Kernel 14B, STTS", "answers": "best of history", "fast@1": "80.9", "fast@1.2": "47.8"},
)
"""In percent."""
VIEWS = ("last turn", "best of history")


def write(out: Path, steps: Sequence[Step], pretend: bool) -> None:
    """Write the page anew from what lies in the folder."""
    (out / FILE).write_text("\n\n".join(parts(out, steps, pretend)) + "\n")


def parts(out: Path, steps: Sequence[Step], pretend: bool) -> Iterator[str]:
    """The page's paragraphs."""
    yield "# The first hour on a GPU" + (": a pretended one, whose times mean nothing" if pretend else "")
    results = {step.name: result_of(out, step.name) for step in steps}
    yield table([
        {"step": name, "state": result.state, "seconds": result.seconds} for name, result in results.items()
    ])  # fmt: skip
    if unmet := list(unmet_checks(out, results)):
        yield "## Checks that do not hold"
        yield table(unmet)
    for name, result in results.items():
        if result.state in ("failed", "left out"):
            yield f"## {name}: {result.state}"
            yield block(result.last_words)
    for name in results:
        log = out / f"{name}.log"
        if name.startswith("clock") and log.exists() and results[name].state in ("done", "stopped"):
            yield f"## {name}: predicted beside measured times"
            yield block(log.read_text(errors="replace"))
    yield "## KernelBench, level 2: share of answers, in percent"
    rows, notes = bench_rows(out / "bench")
    yield table([*PUBLISHED, *rows])
    yield from (SOURCE, *notes)


def block(text: str) -> str:
    """A text as it is."""
    return f"````text\n{text.strip()}\n````"


def unmet_checks(out: Path, names: Iterable[str]) -> Iterator[dict[str, str]]:
    """Rows for what the reports of bench_gpu.py found otherwise than expected, or not to its end."""
    for name in names:
        path = out / name / JSON
        for section, report in json.loads(path.read_text())["sections"].items() if path.exists() else ():
            if report["state"] != "done":
                yield {"step": name, "check": f"section {section} came to its end", "detail": report["last_words"]}
            for check in report["checks"]:
                if not check["held"]:
                    yield {"step": name, "check": check["what"], "detail": check["detail"]}


def bench_rows(folder: Path) -> tuple[list[dict[str, str]], list[str]]:
    """Rows of this run's model, over the tasks that it has finished, and sentences about them."""
    if not (folder / "run.json").exists():
        return [], ["No model was asked yet: name `verl-kernel bench`'s suite, endpoint and model."]
    from verl_kernel.bench import records, scores  # a machine for the other steps alone may lack what this needs
    from verl_kernel.figures.scoring import score

    header, turns = records.read_run(folder)
    finished = finished_tasks(header, turns)
    if not finished:
        return [], [f"{header.model} has not finished a task yet."]
    turns = [turn for turn in turns if turn.task_id in finished]
    asked = header.model_copy(update={"tasks": len(finished)})
    figures = score([scores.attempt(turn) for turn in turns], scores.run_plan(asked, [], turns)).overall
    rows = [
        {"model": f"{header.model}, here", "answers": view}
        | {name: f"{100 * (figures.view(view).values[name].value or 0.0):.1f}" for name in ("fast@1", "fast@1.2")}
        for view in VIEWS
    ]  # fmt: skip
    beside = sum((turn.result.env.get("foreign_processes") or 0) > 0 for turn in turns)
    return rows, [
        f"Here: {header.suite}, {len(finished)} of {header.tasks} tasks, the first ones that were finished, "
        f"{header.samples} sample(s) of {header.turns} turn(s), over {header.baseline}; times: {scores.clock(turns)}. "
        f"Beside {beside} of {len(turns)} answers another process used the GPU."
    ]


def finished_tasks(header: RunHeader, turns: Iterable[BenchTurn]) -> set[str]:
    """Names of the tasks whose trajectories have all come to their end."""
    ends = (turn for turn in turns if turn.turn == header.turns or turn.failure == "context_overflow")
    return {task for task, count in Counter(turn.task_id for turn in ends).items() if count == header.samples}
