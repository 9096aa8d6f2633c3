# SPDX-License-Identifier: Apache-2.0
"""A run's curves against its steps, as one PNG.

Every panel shows metrics under their own names. `{}` stands for each turn number; `held:` for a figure of the held-out
tasks, once per data source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from verl_kernel.reporting.steps import Step, series

PANELS = {
    "reward": ("critic/score/mean", "kernel/turn_{}/reward/mean", "held:reward"),
    "correct rate": ("kernel/correct_rate", "kernel/turn_{}/correct_rate", "kernel/best/correct_rate", "held:acc"),
    "fast@1.2": (
        *("kernel/fast@1.2", "kernel/fast@1.2_sure", "kernel/turn_{}/fast@1.2", "kernel/best/fast@1.2"),
        "held:last_turn_fast@1.2",
    ),
    "time coverage of correct kernels": ("kernel/time_coverage/mean", "kernel/turn_{}/time_coverage/mean"),
    "hacks and decoys": ("kernel/hack_rate", "kernel/decoy_rate", "kernel/hacked_rate"),
    "entropy": ("actor/entropy",),
    "mismatch of rollout and trainer": ("training/rollout_probs_diff_mean",),
    "left out of the gradient": (
        "prs/rejected_fraction",
        "groups/zero_gradient_fraction",
        "rollout_corr/rollout_rs_masked_fraction",
    ),
    "seconds": ("timing_s/step", "timing_s/gen", "kernel/gym_seconds/mean"),
}
_MOST_TURNS = 16


def plot_run(steps: Sequence[Step], validations: Sequence[Step], path: Path, title: str) -> None:
    """Save the panels as a PNG.

    Raises:
        ModuleNotFoundError: matplotlib is not installed (extra `plot`).
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(3, 3, figsize=(14, 10), sharex=True, layout="constrained")
    for axis, (name, keys) in zip(axes.flat, PANELS.items(), strict=True):
        for label, points, style in _lines(steps, validations, keys):
            axis.plot(*zip(*points, strict=True), style, label=label, markersize=4, linewidth=1.2)
        axis.set_title(name)
        axis.grid(alpha=0.3)
        if axis.lines:
            axis.legend(fontsize=7)
    for axis in axes[-1]:
        axis.set_xlabel("step")
        axis.xaxis.get_major_locator().set_params(integer=True)
    figure.suptitle(title, parse_math=False)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def _lines(
    steps: Sequence[Step], validations: Sequence[Step], keys: Sequence[str]
) -> Iterator[tuple[str, list[tuple[int, float]], str]]:
    """Label, points and style of each line of a panel that has points."""
    for key in keys:
        if key.startswith("held:"):
            found: Any = _held_out(validations, key.removeprefix("held:"))
        elif "{}" in key:
            turns = (key.format(turn) for turn in range(1, _MOST_TURNS + 1))
            found = ((name, series(steps, name), ".--") for name in turns)
        else:
            found = ((key, series(steps, key), ".-"),)
        yield from (line for line in found if line[1])


def _held_out(validations: Sequence[Step], figure: str) -> Iterator[tuple[str, list[tuple[int, float]], str]]:
    names = dict.fromkeys(key for one in validations for key in one if key.rpartition("/")[2] == figure)
    return ((f"held out: {name}", series(validations, name), "s-") for name in names if name != "step")
