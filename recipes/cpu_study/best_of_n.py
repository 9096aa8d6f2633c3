# SPDX-License-Identifier: Apache-2.0
"""Best of n: what an untrained policy reaches for as many tokens as a training has cost.

Tokens are those of trajectories as the trainer lays them out, a row each: the task, the answers of all turns and the
feedback between them, once. A training has cost its steps' rows and those of its validations. The same number of tokens
pays for n trajectories of the untrained policy on each validation task. More than n have been drawn, and a figure is
the expected value of the best of n of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from recipes.cpu_study.held_out import CAP
from verl_kernel.bench.scores import attempt
from verl_kernel.bench.validation import read_validation
from verl_kernel.errors import DataError
from verl_kernel.figures.attempts import Attempt, RunPlan, best
from verl_kernel.figures.scoring import best_of_k
from verl_kernel.figures.views import Samples, samples_of
from verl_kernel.reporting.steps import number, read_steps

TOKENS = "perf/total_num_tokens"
"""verl's metric of the tokens in a step's batch."""
FIGURES: dict[str, Callable[[list[Attempt]], float]] = {
    "correct": lambda turns: float(best(turns).correct),
    "correct, first turn": lambda turns: float(turns[0].correct),
    "fast@1.2": lambda turns: float(best(turns).is_fast(1.2)),
    "useful speedup": lambda turns: min(best(turns).speedup or 0.0, CAP),
}
"""Those figures of `held_out.FIGURES` that the best of several trajectories has, of a trajectory's best turn."""


def spent(folder: Path) -> int:
    """Return the tokens of a finished run's training steps and validations.

    Args:
        folder: the run's folder, with `metrics.jsonl` and `validation/`.

    Raises:
        DataError: a file cannot be read, or names no tokens.
    """
    steps = [number(step.get(TOKENS)) for step in read_steps(folder / "metrics.jsonl")]
    if None in steps:
        raise DataError(f"{folder / 'metrics.jsonl'} has steps without {TOKENS}, so the run's cost is unknown")
    validations = sorted((folder / "validation").glob("*.jsonl"))
    return round(sum(step or 0.0 for step in steps)) + sum(_cost(read_samples(path)) for path in validations)


def read_samples(path: Path) -> Samples:
    """Return the trajectories of a validation by task and sample.

    Args:
        path: `<step>.jsonl` in `trainer.validation_data_dir`.

    Raises:
        DataError: the file cannot be read, or holds an answer twice.
    """
    attempts = [attempt(turn) for turn in read_validation(path)]
    asked = RunPlan.of(attempts)
    asked.refuse_others(attempts)
    return samples_of(attempts, asked)


def affordable(samples: Samples, tokens: int) -> int:
    """Return how many trajectories a task, of the mean length of `samples`, a number of tokens pays for; at least 1."""
    drawn = len(samples) // len({task for task, _ in samples})
    return max(1, tokens * drawn // _cost(samples))


def best_of_n(samples: Samples, n: int, splits: Mapping[str, str]) -> dict[str, float]:
    """Return every figure of the best of n trajectories, a mean over all tasks and over those of each split.

    Args:
        samples: trajectories by task and sample.
        n: number of trajectories of a task.
        splits: split by task; tasks without one count in the whole alone.

    Returns:
        `<figure>` and `<split>/<figure>`.

    Raises:
        DataError: fewer than n trajectories of a task have been drawn.
    """
    drawn = len(samples) // len({task for task, _ in samples})
    if drawn < n:
        raise DataError(
            f"the untrained policy has {drawn} trajectories a task and could afford {n}: set "
            f"actor_rollout_ref.rollout.val_kwargs.n of its arm to {n} or more"
        )
    values: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (task, _), turns in samples.items():
        for part in ("", *([f"{splits[task]}/"] if task in splits else [])):
            for name, figure in FIGURES.items():
                values[f"{part}{name}"][task].append(figure(turns) if turns else 0.0)
    return {name: float(np.mean([best_of_k(own, n) for own in tasks.values()])) for name, tasks in values.items()}


def _cost(samples: Samples) -> int:
    """Return the tokens of all trajectories: the last turn's prompt holds all that came before its answer."""
    return sum(turns[-1].tokens or 0 for turns in samples.values() if turns)
