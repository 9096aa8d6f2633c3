# SPDX-License-Identifier: Apache-2.0
"""Figures of a validation's trajectory in addition to `trajectory.summarise`.

verl averages the numbers, and writes numbers and texts into the files of `trainer.validation_data_dir`, from which
`bench.validation` reads every turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from verl_kernel.env import Task
from verl_kernel.reward.record import HASH_COLUMN, TURNS_COLUMN, TurnRecord, dump_turns
from verl_kernel.rollout.trajectory import summarise

_FIGURES = {
    "acc": "acc",
    "best_acc": "best_turn_acc",
    "fast@1.2": "last_turn_fast@1.2",
    "best_fast@1.2": "best_turn_fast@1.2",
}


def texts(task: Task, turns: Sequence[TurnRecord]) -> dict[str, str]:
    """Return the texts that only the files hold."""
    return {TURNS_COLUMN: dump_turns(list(turns)), HASH_COLUMN: task.text_hash}


def turn_figures(turns: Sequence[TurnRecord], max_turns: int, window: int | None = None) -> dict[str, float]:
    """Return `turn_k_*`, the figures of the last and of the best answer until turn k, and the cost of the turns.

    Only validation-only runs report them, because verl needs seconds to bootstrap each figure.

    Args:
        turns: turns of a trajectory; after an early end its last and its best answer stay.
        max_turns: number of turns that were asked for; the figures of the last one are those of `summarise`.
        window: how many earlier turns a prompt shows if they fit; None for all.
    """
    figures = {"tokens": float(sum(turn.tokens for turn in turns))}
    for number in range(1, max_turns):
        until = summarise(list(turns[:number]))
        figures |= {f"turn_{number}_{name}": until[key] for name, key in _FIGURES.items()}
    if window is not None:
        narrowed = [len(turn.shown) < min(window, earlier) for earlier, turn in enumerate(turns)]
        figures["narrowed"] = sum(narrowed) / len(turns)
    return figures
