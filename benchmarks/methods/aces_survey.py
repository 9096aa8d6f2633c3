# SPDX-License-Identifier: Apache-2.0
"""The table that `aces_pools.py` works on: every candidate of every pool on 24 inputs, judged on a CPU."""

from __future__ import annotations

import hashlib
from typing import Any

from aces_candidates import POOLS, Pool, digest

from verl_kernel.env import KINDS, GymOptions, Judge, Task

PER_KIND = 8
SEED = 20
"""Inputs repeat with it; verdicts of a training run draw theirs afresh."""


def survey() -> dict[str, Any]:
    """Outcomes by pool; a cell is the status that the trial ended with."""
    kinds = [kind for kind in KINDS for _ in range(PER_KIND)]
    with Judge(GymOptions(device="cpu")) as judge:
        pools = {pool.name: _pool(judge, pool, kinds) for pool in POOLS}
    return {"sources": digest(), "seed": SEED, "kinds": kinds, "pools": pools}


def _pool(judge: Judge, pool: Pool, kinds: list[Any]) -> dict[str, Any]:
    task, secret = Task(pool.task, task_id=pool.name), hashlib.sha256(f"{SEED} {pool.name}".encode()).digest()
    rows = {}
    for name, source in pool.sources().items():
        outcomes = judge.survey(task, source, kinds, secret)
        rows[name] = [None if outcome is None else outcome.value for outcome in outcomes]
    print(pool.name, len(rows), "candidates", flush=True)
    return rows
