# SPDX-License-Identifier: Apache-2.0
"""Computes the values that `recorded.json` keeps."""

import hashlib
import json
from pathlib import Path
from random import Random
from typing import Any

from tests.exploits.tasks import TASKS
from verl_kernel.env.backends import resolve_device
from verl_kernel.env.machine.machine import Machine
from verl_kernel.env.machine.price import time_ms
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.task import Task
from verl_kernel.env.trace import dump_events
from verl_kernel.quickstart.worlds import Name, make_world

RECORDED = Path(__file__).parent / "recorded.json"
WORLDS: tuple[Name, ...] = ("easy", "hard")
_TASKS, _TALKS = 300, 100


def world_hashes(name: Name) -> dict[str, str]:
    """Return hashes of a world's references with their prompts, and of its conversations."""
    world, rng, taken = make_world(name), Random(7), set[str]()
    programs = world.tasks(_TASKS, rng, taken)
    tasks = [(one.task_id, one.level, one.reference, world.messages(one)) for one in programs]
    return {"tasks": _hash(tasks), "talks": _hash(world.talks(_TALKS, rng, taken))}


def prices(name: str) -> dict[str, Any]:
    """Return the milliseconds of a task of the exploit corpus on an H100, and a hash of its events."""
    device = resolve_device("cpu")
    device.setup()
    events = Reference(Task(TASKS[name], task_id=name), device).events
    return {"ms": time_ms(events, Machine.of("h100")), "events": _hash(dump_events(events))}


def recorded() -> dict[str, Any]:
    """Return the values as they are now."""
    return {"worlds": {name: world_hashes(name) for name in WORLDS}, "prices": {name: prices(name) for name in TASKS}}


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(recorded(), indent=1) + "\n")
