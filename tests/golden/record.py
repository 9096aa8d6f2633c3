# SPDX-License-Identifier: Apache-2.0
"""Computes the values that `recorded.json` keeps."""

import hashlib
import json
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

from tests.exploits.tasks import TASKS
from verl_kernel.bench.records import read_turns
from verl_kernel.bench.scores import score_run
from verl_kernel.env.backends import resolve_device
from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.machine.price import time_ms
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.task import Task
from verl_kernel.env.trace import dump_events
from verl_kernel.generated_tasks.difficulty import read_difficulty
from verl_kernel.generated_tasks.generator import World
from verl_kernel.reward.record import TurnRecord
from verl_kernel.rollout.trajectory import summarise
from verl_kernel.sampler.metrics import kernel_metrics

RECORDED = Path(__file__).parent / "recorded.json"
WORLDS = ("easy", "hard")
_EVALUATIONS = Path(__file__).parents[2] / "data/bench/quickstart"
RUNS = [_EVALUATIONS / name for name in ("eight_turns", "first_answers", "three_turns_trained")]
"""Of one, of three and of eight turns."""
_TASKS, _TALKS = 300, 100
_WIDTH = 100


def world_hashes(name: str) -> dict[str, str]:
    """Return hashes of a world's references with their prompts, and of its conversations."""
    world, rng, taken = World(read_difficulty(name)), Random(7), set[str]()
    programs = world.tasks(_TASKS, rng, taken)
    tasks = [(one.task_id, one.level, one.reference, world.messages(one)) for one in programs]
    return {"tasks": _hash(tasks), "talks": _hash(world.talks(_TALKS, rng, taken))}


def prices(name: str) -> dict[str, Any]:
    """Return the milliseconds of a task of the exploit corpus on an H100, and a hash of its events."""
    device = resolve_device("cpu")
    device.setup()
    events = Reference(Task(TASKS[name], task_id=name), device).events
    return {"ms": time_ms(events, MachineModel.of("h100")), "events": _hash(dump_events(events))}


def figures(run: Path) -> dict[str, dict[str, float | None]]:
    """Return what the bench, a validation and the sampler say of the answers of a kept run."""
    trajectories = _trajectories(run)
    validations = [summarise(turns) for turns in trajectories]
    _, scores = score_run(run)
    views = {"last turn": scores.overall.last_turn, "best of history": scores.overall.best_of_history}
    return {
        "bench": {f"{view}, {name}": one.value for view, found in views.items() for name, one in found.values.items()},
        "validation": {key: sum(one[key] for one in validations) / len(validations) for key in validations[0]},
        "sampler": kernel_metrics(trajectories),
    }


def _trajectories(run: Path) -> list[list[TurnRecord]]:
    played: defaultdict[tuple[str, int], list[TurnRecord]] = defaultdict(list)
    for one in sorted(read_turns(run), key=lambda one: one.turn):
        played[one.task_id, one.sample].append(TurnRecord(start=0, stop=1, reward=one.reward, result=one.result))
    return list(played.values())


def recorded() -> dict[str, Any]:
    return {
        "worlds": {name: world_hashes(name) for name in WORLDS},
        "prices": {name: prices(name) for name in TASKS},
        "figures": {run.name: figures(run) for run in RUNS},
    }


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _rows(values: Any, indent: str = "") -> str:
    """Return values as JSON, in which what holds no further objects is a row, or several where it is longer."""
    if not any(isinstance(value, dict) for value in values.values()):
        return _filled([f"{json.dumps(key)}: {json.dumps(value)}" for key, value in values.items()], indent)
    parts = [f"{indent} {json.dumps(key)}: {_rows(value, indent + ' ')}" for key, value in values.items()]
    return "{\n" + ",\n".join(parts) + f"\n{indent}}}"


def _filled(items: list[str], indent: str) -> str:
    rows = [""]
    for item in items:
        if len(rows[-1]) + len(item) > _WIDTH:
            rows.append("")
        rows[-1] += f"{item}, "
    return "{" + f"\n{indent} ".join(row.rstrip() for row in rows).removesuffix(",") + "}"


if __name__ == "__main__":
    RECORDED.write_text(_rows(recorded()) + "\n")
