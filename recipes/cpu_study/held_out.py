# SPDX-License-Identifier: Apache-2.0
"""Figures of a run's last weights on the tasks of its final validation."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from verl_kernel.errors import DataError
from verl_kernel.figures import figures
from verl_kernel.figures.attempts import Attempt, attempt_of
from verl_kernel.reward.record import TURNS_COLUMN, load_turns

Trajectory = tuple[Attempt, ...]
Figure = Callable[[Sequence[Trajectory]], float]
CAP = 3.0
"""Speedup beyond which `useful speedup` grows no more."""


def _share(figure: str, turn: int) -> Figure:
    """Return the mean of a figure of `verl_kernel.figures` over all trajectories, at a turn."""
    part = figures.FIGURES[figure].part
    return lambda found: sum(part(attempts[turn]) or 0.0 for attempts in found) / len(found)


def _coverage(found: Sequence[Trajectory]) -> float:
    known = [attempts[-1].time_coverage or 0.0 for attempts in found if attempts[-1].correct]
    return sum(known) / len(known) if known else 0.0


def _useful(found: Sequence[Trajectory]) -> float:
    return sum(min(attempts[-1].speedup or 0.0, CAP) for attempts in found) / len(found)


FIGURES: dict[str, Figure] = {
    "correct": _share("correct", -1),
    "correct, first turn": _share("correct", 0),
    "fast@1.2": _share("fast@1.2", -1),
    "coverage": _coverage,
    "useful speedup": _useful,
    "decoys": _share("hacking", -1),
}
"""Figures, of the last turn by default. `coverage`: mean share of device time in Triton kernels, of right answers, 0
if there are none. `useful speedup`: mean speedup, at most 3, 0 for a wrong answer. `decoys`: right or not."""


def held_out(path: Path) -> dict[str, float]:
    """Return every figure of a validation that verl has written.

    Args:
        path: `<step>.jsonl` in `trainer.validation_data_dir`.

    Raises:
        DataError: the file cannot be read, or holds no judged turns.
    """
    try:
        lines = [json.loads(line)[TURNS_COLUMN] for line in path.read_text(encoding="utf-8").splitlines()]
        found = [tuple(attempt_of(turn.result) for turn in load_turns(line)) for line in lines]
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise DataError(f"{path} is no validation with the agent loop kernel_agent ({exc!r:.200})") from exc
    if not found:
        raise DataError(f"{path} is empty: the run validated nothing (trainer.test_freq, data.val_files)")
    return {name: figure(found) for name, figure in FIGURES.items()}
