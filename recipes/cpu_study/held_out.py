# SPDX-License-Identifier: Apache-2.0
"""Figures of a run's last weights on the tasks of its final validation."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from verl_kernel.data.temperatures import MARK
from verl_kernel.errors import DataError
from verl_kernel.figures import figures
from verl_kernel.figures.attempts import Attempt, attempt_of
from verl_kernel.generated_tasks.kinds import SPLITS
from verl_kernel.reward.record import TURNS_COLUMN, load_turns

Trajectory = tuple[Attempt, ...]
Figure = Callable[[Sequence[Trajectory]], float]
BEST = "best"
"""Stands for the temperature at which an arm's figure is best."""
CAP = 3.0
"""Speedup beyond which `useful speedup` grows no more."""


def _share(figure: str, turn: int) -> Figure:
    """Return the mean of a figure of `verl_kernel.figures` over all trajectories, at a turn."""
    part = figures.FIGURES[figure].part
    return lambda found: sum(part(attempts[turn]) or 0.0 for attempts in found) / len(found)


def _coverage(found: Sequence[Trajectory]) -> float:
    known = [attempts[-1].time_coverage or 0.0 for attempts in found if attempts[-1].correct]
    return sum(known) / len(known) if known else 0.0


def _novel(found: Sequence[Trajectory]) -> float:
    known = [float(attempts[-1].novel or False) for attempts in found if attempts[-1].correct]
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
    "novel": _novel,
}
"""Figures, of the last turn by default. `coverage`: mean share of device time in Triton kernels, of right answers, 0
if there are none. `useful speedup`: mean speedup, at most 3, 0 for a wrong answer. `decoys`: right or not. `novel`:
share of right answers whose normal form is not in the cold start, 0 if there are none."""


def is_figure(name: str) -> bool:
    """Whether a name is that of a figure over the whole validation, or, after a slash, over one of its splits.

    A split may be that of one temperature (`new_chain@0.3`), or of each arm's best one (`new_chain@best`).
    """
    split, _, figure = name.rpartition("/")
    split, mark, temperature = split.partition(MARK)
    is_split = split in SPLITS and (temperature == BEST or temperature.replace(".", "", 1).isdecimal() or not mark)
    return figure in FIGURES and (is_split or not split + mark)


def held_out(path: Path, splits: Mapping[str, str]) -> dict[str, float]:
    """Return every figure of a validation that verl has written, over all its tasks and over those of each split.

    Args:
        path: `<step>.jsonl` in `trainer.validation_data_dir`.
        splits: split by task; tasks without one count in the whole alone.

    Returns:
        `<figure>` and `<split>/<figure>`.

    Raises:
        DataError: the file cannot be read, or holds no judged turns.
    """
    found = defaultdict(list)
    for trajectory in _trajectories(path):
        split = splits.get(trajectory[0].task)
        for part in ("", *([f"{split}/"] if split else [])):
            found[part].append(trajectory)
    return {f"{part}{name}": figure(own) for part, own in found.items() for name, figure in FIGURES.items()}


def _trajectories(path: Path) -> list[Trajectory]:
    try:
        lines = [json.loads(line)[TURNS_COLUMN] for line in path.read_text(encoding="utf-8").splitlines()]
        found = [
            tuple(attempt_of(turn.result, task=turn.result.task_id, novelty=turn.novelty) for turn in load_turns(line))
            for line in lines
        ]
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise DataError(f"{path} is no validation with the agent loop kernel_agent ({exc!r:.200})") from exc
    if not found:
        raise DataError(f"{path} is empty: the run validated nothing (trainer.test_freq, data.val_files)")
    return found
