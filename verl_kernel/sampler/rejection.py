# SPDX-License-Identifier: Apache-2.0
"""Profiling-based rejection sampling (PRS): which turns of a batch leave the loss (Dr. Kernel, Eq. 9).

A turn whose candidate may earn a reward is kept with probability

    p = clip((coverage - threshold) / width, 0, 1)        (width 0: 1 where coverage >= threshold, else 0)

Every other turn is kept: failures are the negatives the policy learns from. So is a turn of unknown coverage. The
draw is a pure function of (seed, step, trajectory key, turn): neither the order of the batch nor the
number of workers changes it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from verl_kernel.errors import ConfigError
from verl_kernel.reward.record import TurnRecord

NODE = "trainer.v1.sampler.sampler_kwargs"
COVERAGES = ("time_coverage", "number_coverage")


@dataclass(frozen=True)
class PRSOptions:
    """Options of the sampler, read from `trainer.v1.sampler.sampler_kwargs`.

    Raises:
        ConfigError: a value is out of its range; the message names the full key.
    """

    enabled: bool = True
    """Whether turns are rejected; the kernel metrics are reported either way."""
    key: str = "time_coverage"
    """`time_coverage` or `number_coverage`."""
    threshold: float = 0.3
    """Coverage at and below which a correct turn is rejected for certain."""
    width: float = 0.1
    """Coverage above the threshold over which the probability grows to 1; 0 is a hard cut."""
    seed: int = 0
    poll_interval_s: float = 2.0
    """How long the trainer sleeps between two looks for finished rollouts."""
    record_dir: str | None = None
    """Folder for `sample_log`, a file per step; nothing is written when null."""

    def __post_init__(self) -> None:
        if not isinstance(self.enabled, bool):
            raise ConfigError(f"{NODE}.enabled is {self.enabled!r}; it must be true or false")
        if self.key not in COVERAGES:
            raise ConfigError(f"{NODE}.key is {self.key!r}; it must be one of {', '.join(COVERAGES)}")
        for key, low, high in (("threshold", 0.0, 1.0), ("width", 0.0, 1.0), ("poll_interval_s", 0.01, 60.0)):
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                raise ConfigError(f"{NODE}.{key} is {value!r}; it must be a number between {low} and {high}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise ConfigError(f"{NODE}.seed is {self.seed!r}; it must be a whole number")

    @classmethod
    def from_node(cls, node: Mapping[str, Any] | None) -> PRSOptions:
        """Read the node of a composed configuration, refusing keys it does not know."""
        allowed = [field.name for field in fields(cls)]
        for key in node or {}:
            if key not in allowed:
                raise ConfigError(f"{NODE}.{key} is unknown; the keys are {', '.join(allowed)}")
        return cls(**dict(node or {}))


@dataclass(frozen=True)
class Verdict:
    """What became of one turn."""

    probability: float | None
    """Probability of keeping it; `None` where PRS has no say."""
    kept: bool


def keep_probability(turn: TurnRecord, options: PRSOptions) -> float | None:
    """Probability of keeping a turn, or `None` where PRS has no say."""
    coverage = getattr(turn.result, options.key)
    if not turn.result.rewarded or coverage is None or math.isnan(coverage):
        return None
    if options.width == 0:
        return float(coverage >= options.threshold)
    return float(min(max((coverage - options.threshold) / options.width, 0.0), 1.0))


def uniform(*counter: object) -> float:
    """A number in [0, 1) that depends on nothing but its arguments."""
    digest = hashlib.sha256("\0".join(map(str, counter)).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2.0**64


def judge_turns(key: str, turns: Sequence[TurnRecord], step: int, options: PRSOptions) -> list[Verdict]:
    """Decide about each turn of one trajectory.

    Args:
        key: the trajectory's name, unique within the step (verl's `{uid}_{session}_{output}`).
        turns: its turns in order.
        step: the training step.
        options: the rule and its seed.
    """
    verdicts = []
    for number, turn in enumerate(turns):
        probability = keep_probability(turn, options)
        kept = probability is None or uniform(options.seed, step, key, number) < probability
        verdicts.append(Verdict(probability, kept))
    return verdicts


def prs_metrics(verdicts: Sequence[Sequence[Verdict]]) -> dict[str, float]:
    """Metrics `prs/*` of a batch; a mean over no turn is left out."""
    turns = [verdict for row in verdicts for verdict in row]
    if not turns:
        return {}
    rejected = [verdict for verdict in turns if not verdict.kept]
    probabilities = [verdict.probability for verdict in turns if verdict.probability is not None]
    metrics = {
        "prs/rejected_turns": float(len(rejected)),
        "prs/rejected_fraction": len(rejected) / len(turns),
        "prs/eligible_fraction": len(probabilities) / len(turns),
        "prs/rejected_trajectories": float(sum(bool(row) and not any(v.kept for v in row) for row in verdicts)),
    }
    if probabilities:
        metrics["prs/kept_probability"] = sum(probabilities) / len(probabilities)
    return metrics
