# SPDX-License-Identifier: Apache-2.0
"""Metrics of a sampled batch: quality of kept and rejected turns, groups without gradient, waiting times."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

from verl_kernel.figures.attempts import attempt_of
from verl_kernel.sampler.groups import has_zero_variance, prompt_of
from verl_kernel.sampler.kernel_metrics import maximum, mean, quality
from verl_kernel.sampler.rejection import Verdict
from verl_kernel.sampler.rows import Row


def selection_metrics(rows: Sequence[Row], verdicts: Sequence[Sequence[Verdict]]) -> dict[str, float]:
    """Return `prs/kept/*` and `prs/rejected/*`: rates over the turns of that kind, means over the correct ones."""
    judged = [pair for row, own in zip(rows, verdicts, strict=True) for pair in zip(row.turns, own, strict=True)]
    metrics: dict[str, float] = {}
    for name, kept in (("kept", True), ("rejected", False)):
        turns = [turn for turn, verdict in judged if verdict.kept is kept]
        if turns:
            metrics |= quality(f"prs/{name}", [attempt_of(turn.result) for turn in turns], len(turns))
            metrics |= mean(f"prs/{name}/reward/mean", (turn.reward for turn in turns))
    return metrics


def gradient_metrics(rows: Sequence[Row], verdicts: Sequence[Sequence[Verdict]], std: float) -> dict[str, float]:
    """Return metrics `groups/*` of the (prompt, turn) groups within which `trloo` and `turn_grpo` compare rollouts.

    A group has no gradient if its rollouts earned the same from that turn on (so that all advantages are 0 for any
    discount), if only one rollout reached the turn, or if all of its turns were rejected.

    Args:
        rows: the trajectories.
        verdicts: per trajectory, the decision on each turn.
        std: standard deviation of rewards up to which they count as equal.
    """
    tails: dict[tuple[str, int], list[list[float]]] = defaultdict(list)
    kept: dict[tuple[str, int], bool] = defaultdict(bool)
    for row, own in zip(rows, verdicts, strict=True):
        rewards = [turn.reward for turn in row.turns]
        for number, verdict in enumerate(own):
            tails[prompt_of(row.key), number].append(rewards[number:])
            kept[prompt_of(row.key), number] |= verdict.kept
    if not tails:
        return {}
    silent = {at: not kept[at] or len(group) < 2 or has_zero_variance(group, std) for at, group in tails.items()}
    metrics = {"groups/zero_gradient_fraction": sum(silent.values()) / len(silent)}
    for number in range(1 + max(number for _, number in tails)):
        own_turn = [at for at in tails if at[1] == number]
        prefix = f"groups/turn_{number + 1}"
        metrics[f"{prefix}/zero_gradient_fraction"] = sum(silent[at] for at in own_turn) / len(own_turn)
        metrics |= mean(f"{prefix}/return_std", (statistics.pstdev(map(sum, tails[at])) for at in own_turn))
    return metrics


def unjudged_metrics(rows: Sequence[Row]) -> dict[str, float]:
    """Return `kernel/unjudged_fraction`: the share of trajectories, of any loop, with a turn that was not judged."""
    return {"kernel/unjudged_fraction": sum(row.unjudged for row in rows) / len(rows)} if rows else {}


def waiting_metrics(rows: Sequence[Row]) -> dict[str, float]:
    """Return metrics `kernel/gym_*`: how long trajectories waited for verdicts, and the share of their time."""
    waited = [row.gym_seconds for row in rows if row.turns]
    total = sum(waited) + sum(row.generate_seconds for row in rows if row.turns)
    metrics = mean("kernel/gym_seconds/mean", waited) | maximum("kernel/gym_seconds/max", waited)
    return metrics | ({"kernel/gym_share": sum(waited) / total} if total > 0 else {})
