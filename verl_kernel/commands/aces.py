# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel aces`: choose, by a task's candidates, the kinds of trials that tell such candidates apart.

Every candidate is run on the same inputs and compared with the reference; ACES weighs the inputs; the trials of an
evaluation are spread over kinds of inputs by these weights. The judge's own plan stays where it is expected to reject
more of the candidates. `kernelgym.trial_choice` takes the file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from verl_kernel.aces import outcome_table, report, weights
from verl_kernel.aces.allocation import allocate, expected_rejections
from verl_kernel.commands import gym_options
from verl_kernel.data.files import check_file, writing
from verl_kernel.data.rows import read_tasks
from verl_kernel.env import GymOptions, Task
from verl_kernel.errors import DataError

FORMAT = 1
"""Version of the file's format; a file of another version is not continued but replaced."""
Choices = dict[str, dict[str, Any]]


def command(
    *,
    tasks: Annotated[Path, typer.Argument(metavar="TASKS.parquet", help="Tasks, as a recipe trains on.")],
    candidates: Annotated[Path, typer.Option(help="Folder with <task_id>/*.py: two candidates or more of a task.")],
    out: Annotated[Path, typer.Option(help="File to write; tasks in it with the same candidates are skipped.")],
    trials: Annotated[int, typer.Option(min=5, max=64, help="Trials of one evaluation.")] = 5,
    inputs: Annotated[int, typer.Option(min=1, max=64, help="Inputs of each kind that candidates are run on.")] = 8,
    method: Annotated[str, typer.Option(help="c (closed form) or o (optimised).")] = "c",
    device: gym_options.Device = gym_options.USUAL["device"],
    seed: Annotated[int | None, typer.Option(help="Draw the same inputs in every run.")] = None,
) -> None:
    """Choose kinds of trials for `kernelgym.trial_choice`."""
    weights([[1]], method)  # a wrong name must not wait for the judge
    check_file(out)
    _choose(
        read_tasks(tasks),
        candidates,
        out,
        trials=trials,
        inputs=inputs,
        method=method,
        options=_options(device),
        seed=seed,
    )


def _choose(
    tasks: Sequence[Task],
    folder: Path,
    out: Path,
    *,
    trials: int,
    inputs: int,
    method: str,
    options: GymOptions,
    seed: int | None,
) -> None:
    from verl_kernel.env import KINDS, Judge  # torch and triton, which a usage error need not wait for

    choices, chosen = _earlier_choices(out), 0
    base = os.urandom(32) if seed is None else str(seed).encode()
    kinds = [kind for kind in KINDS for _ in range(inputs)]
    with Judge(options) as judge:
        for task in tasks:
            sources = _sources(folder / task.task_id)
            if len(sources) < 2:
                typer.echo(f"{task.task_id}: left out, it has {len(sources)} candidates in {folder / task.task_id}")
                continue
            chosen, pool = chosen + 1, _digest(sources, [trials, inputs, method, seed, options.device])
            if choices.get(task.fingerprint, {}).get("pool") != pool:
                secret = hashlib.sha256(base + task.fingerprint.encode()).digest()
                rows = [judge.survey(task, source, kinds, secret) for source in sources]
                choices[task.fingerprint] = {
                    "task_id": task.task_id,
                    "pool": pool,
                    **_entry(rows, kinds, trials, method),
                }
                _write(out, choices)
            typer.echo(f"{task.task_id}: {_line(choices[task.fingerprint])}")
    if not chosen:
        raise DataError(f"--candidates {folder} has no candidates of these tasks: store them as <task_id>/<name>.py")


def _sources(folder: Path) -> list[str]:
    return [path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.glob("*.py"))]


def _entry(rows: Sequence[Sequence[Any]], kinds: Sequence[str], trials: int, method: str) -> dict[str, Any]:
    """Return the choice of ACES for a task, with the judge's own plan and the expected rejections of both."""
    table, ran = outcome_table(rows)
    weighting = weights(table, method, ran)
    aces_plan, own_plan = allocate(weighting.values, kinds, trials), _own_plan(trials)
    expected = {
        name: expected_rejections(table, kinds, kind_counts, ran)
        for name, kind_counts in (("aces", aces_plan), ("own", own_plan))
    }
    plan = "aces" if not weighting.degenerate and expected["aces"] >= expected["own"] else "own"
    return {
        "kinds": aces_plan if plan == "aces" else own_plan,
        "plan": plan,
        "expected_rejections": expected,
        "inputs": list(kinds),
        "report": report(table, method, ran),
    }


def _own_plan(trials: int) -> dict[str, int]:
    """Return the judge's own plan: one trial of each kind, and the rest as `get_inputs()` draws them."""
    from verl_kernel.env import KINDS

    return {kind: 1 if kind != "drawn" else trials + 1 - len(KINDS) for kind in KINDS}


def _options(device: Any) -> GymOptions:
    return GymOptions(device=device)


def _digest(sources: Sequence[str], settings: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps([list(sources), list(settings)]).encode()).hexdigest()


def _line(entry: dict[str, Any]) -> str:
    counts = ", ".join(f"{count} {kind}" for kind, count in entry["kinds"].items())
    expected = entry["expected_rejections"]
    return (
        f"{counts} ({entry['plan']}; of {entry['report']['candidates']} candidates {expected['aces']:.2f} are expected "
        f"to be rejected by ACES' kinds, {expected['own']:.2f} by the judge's own)"
    )


def _earlier_choices(out: Path) -> Choices:
    if not out.exists():
        return {}
    try:
        data = json.loads(out.read_text(encoding="utf-8"))
        tasks: Choices = data["tasks"] if data["format"] == FORMAT else {}
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise DataError(f"--out {out} is no file of this command ({exc}): name another one") from None
    return tasks


def _write(out: Path, tasks: Choices) -> None:
    with writing(out) as part:
        part.write_text(json.dumps({"format": FORMAT, "tasks": tasks}, indent=1) + "\n", encoding="utf-8")
