# SPDX-License-Identifier: Apache-2.0
"""Figure and table of `stale.py`'s runs: mean over seeds, Student's 95 % interval.

python benchmarks/methods/stale_figure.py
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from figure_files import publish
from stale import ARMS, STALENESS

from recipes.cpu_study.comparisons import holm
from recipes.cpu_study.figure import smooth
from recipes.cpu_study.student import p_value
from recipes.cpu_study.summary import interval
from verl_kernel.reporting.plots import draw_line, drawing

FIRST, END = "rec_one_side", "held_out_reward"
LAST = 5
"""Steps that a run's last figure averages."""


def curves(rows: Sequence[dict[str, Any]], arm: str, staleness: int, key: str) -> list[list[float]]:
    """A measure of an arm's runs, step by step; a run per seed."""
    runs: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        if (row["arm"], row["staleness"]) == (arm, staleness):
            runs[row["seed"]].append(row[key])
    return list(runs.values())


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    with drawing(path, 2, 3, figsize=(13, 7), sharex=True, sharey="row") as (figure, axes):
        for column, staleness in enumerate(STALENESS):
            for line, key in enumerate(("reward", "entropy")):
                axis = axes[line, column]
                for number, (arm, (title, _)) in enumerate(ARMS.items()):
                    runs = [smooth(run) for run in curves(rows, arm, staleness, key)]
                    if not runs:
                        continue
                    found = [interval(values) for values in zip(*runs, strict=True)]
                    steps = range(1, len(found) + 1)
                    label = f"{title}, no clip, TIS" if staleness == 0 and arm == "ppo_clip" else title
                    low, high = ([p.mean + sign * (p.half or 0.0) for p in found] for sign in (-1, 1))
                    draw_line(axis, steps, [p.mean for p in found], (low, high), colour=f"C{number}", label=label)
                axis.set_ylabel(key if column == 0 else "")
            axes[0, column].set_title(f"staleness {staleness}")
            axes[1, column].set_xlabel("step")
            axes[0, column].legend(fontsize=8)
        figure.suptitle("Reward and entropy of the samples (entropy in nats per token); bands: 95 % over seeds")


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: reward of the last steps' samples, the last weights on the validation's tasks, and pairs of losses."""
    lines = [
        "| loss | staleness | seeds | last 5 steps | reward | correct | entropy | log ratio |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for arm, (title, _) in ARMS.items():
        for staleness in STALENESS:
            own = [row for row in rows if (row["arm"], row["staleness"]) == (arm, staleness)]
            if not own:
                continue
            last = [row for row in own if "held_out_reward" in row]
            reward = interval([sum(run[-LAST:]) / LAST for run in curves(rows, arm, staleness, "reward")])
            figures = [interval([row[key] for row in last]) for key in ("held_out_reward", "held_out_correct")]
            entropy = interval([row["held_out_entropy"] for row in last]).mean
            largest = max(row["log_ratio"] for row in own)
            cells = [title, str(staleness), str(len(last)), str(reward), *map(str, figures)]
            lines.append("| " + " | ".join([*cells, f"{entropy:.3f}", f"{largest:.3f}"]) + " |")
    return "\n".join(lines) + "\n\n" + pairs(rows)


def pairs(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: reward of REC one-side less that of every other loss, by seed, with p by Holm over all lines."""
    end = {(row["arm"], row["staleness"], row["seed"]): row["held_out_reward"] for row in rows if END in row}
    seeds = sorted({seed for _, _, seed in end})
    found = {
        (arm, age): [end[FIRST, age, seed] - end[arm, age, seed] for seed in seeds]
        for age in STALENESS[1:]
        for arm in ARMS
        if arm != FIRST
    }
    corrected = holm([p_value(values) for values in found.values()])
    lines = ["| REC one-side less | staleness | reward | p | p by Holm |", "|---|---|---|---|---|"]
    for ((arm, age), values), p in zip(found.items(), corrected, strict=True):
        lines.append(f"| {ARMS[arm][0]} | {age} | {interval(values)} | {p_value(values):.3f} | {p:.3f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    publish("stale", __doc__, draw, table)
