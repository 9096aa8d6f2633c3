# SPDX-License-Identifier: Apache-2.0
"""How a model starts: shares of its answers by level and kind, and how its tasks' rates of right answers spread.

    python benchmarks/study/starting_rates.py outputs/rates/train outputs/rates/val

Reads runs of `verl-kernel bench` and prints a table in Markdown for each. Speedups are simulated.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from verl_kernel.bench.records import BenchTurn, read_run, read_tasks
from verl_kernel.env import EvalResult, EvalStatus

KINDS = {
    "full (2x or more)": lambda result: result.rewarded and (result.speedup or 0.0) >= 2,
    "partial (1.5x to 2x)": lambda result: result.rewarded and 1.5 <= (result.speedup or 0.0) < 2,
    "lazy (below 1.5x)": lambda result: result.rewarded,
    "decoy": lambda result: result.status is EvalStatus.DECOY,
    "wrong type": lambda result: result.error is not None and result.error.type == "WrongDtype",
    "wrong values": lambda result: result.status is EvalStatus.INCORRECT,
    "unsafe": lambda result: result.status is EvalStatus.UNSAFE,
    "refused or raised": lambda result: True,
}
"""Kinds of answers by what the gym said of them; the first that fits counts."""
EDGES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4)


def kind_of(result: EvalResult) -> str:
    """The kind of an answer."""
    return next(name for name, fits in KINDS.items() if fits(result))


def shares(turns: Iterable[BenchTurn]) -> list[float]:
    """The share of every kind."""
    found = Counter(kind_of(turn.result) for turn in turns)
    return [found[kind] / max(1, found.total()) for kind in KINDS]


def kinds_table(turns: Sequence[BenchTurn], level_of: dict[str, int | None]) -> str:
    """A table: a row per level and turn."""
    groups: dict[tuple[str, int], list[BenchTurn]] = defaultdict(list)
    for turn in turns:
        for name in (f"level {level_of.get(turn.task_id)}", "all"):
            groups[name, turn.turn].append(turn)
    lines = ["| tasks | turn | answers | right | " + " | ".join(KINDS) + " |", "|---" * (len(KINDS) + 4) + "|"]
    for (name, number), own in sorted(groups.items(), key=lambda item: (item[0][1], item[0][0] == "all", item[0][0])):
        right = sum(turn.result.rewarded for turn in own) / len(own)
        cells = " | ".join(f"{share:.2f}" for share in shares(own))
        lines.append(f"| {name} | {number} | {len(own)} | {right:.2f} | {cells} |")
    return "\n".join(lines)


def spread_table(turns: Sequence[BenchTurn]) -> str:
    """How many tasks have which rate of right first answers."""
    rates: dict[str, list[bool]] = defaultdict(list)
    for turn in turns:
        if turn.turn == 1:
            rates[turn.task_id].append(turn.result.rewarded)
    found = Counter(sum(sum(own) / len(own) >= edge for edge in EDGES) for own in rates.values())
    names = [f"below {EDGES[0]}", *(f"{a} to {b}" for a, b in pairwise(EDGES)), f"{EDGES[-1]} or more"]
    lines = ["| right first answers | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    return "\n".join([*lines, "| tasks | " + " | ".join(str(found[number]) for number in range(len(names))) + " |"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    for folder in parser.parse_args().runs:
        turns = read_run(folder)[1]
        levels = {task.task_id: task.level for task in read_tasks(folder)}
        print(f"{folder.name}\n\n{kinds_table(turns, levels)}\n\n{spread_table(turns)}\n")


if __name__ == "__main__":
    main()
