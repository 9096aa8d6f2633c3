# SPDX-License-Identifier: Apache-2.0
"""Profiling-based rejection sampling (PRS): which turns of a batch leave the loss (Dr. Kernel, Eq. 9).

A turn whose candidate `earns` (`reward.profiling`) is kept with probability

    p = clip((coverage - threshold) / width, 0, 1)        (width 0: 1 where coverage >= threshold, else 0)

and always if its sure speedup, the one PR pays for, reaches `speedup_threshold`; noise gives no exemption. Every other
turn is kept: failures are the negatives from which the policy learns. A turn of unknown coverage is kept too. At level
`trajectory` the turns that earn share one p (from the geometric mean of their coverages and their best sure speedup)
and one draw, and a rejected trajectory loses all of its turns; a trajectory without such a turn is kept. (The released
script draws for each turn by the common p, and its mean is over all turns with tokens.)

The draw is a pure function of (seed, step, trajectory's name, turn): neither the order of the batch nor the number
of workers changes it, and with names that repeat it repeats from run to run.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from verl_kernel.reward.record import TurnRecord
from verl_kernel.sampler.options import PRSOptions


@dataclass(frozen=True)
class TurnDecision:
    """The decision on one turn."""

    probability: float | None
    """Probability of keeping the turn; `None` if PRS does not apply to it."""
    is_kept: bool


def keep_probability(turn: TurnRecord, options: PRSOptions) -> float | None:
    """Return the probability of keeping a turn, or `None` if PRS does not apply to it."""
    coverage = _coverage(turn, options)
    return None if coverage is None else _probability(coverage, turn.result.sure_speedup, options)


def trajectory_probability(turns: Sequence[TurnRecord], options: PRSOptions) -> float | None:
    """Return the probability of keeping a whole trajectory, or `None` if PRS does not apply to it."""
    covered = [(coverage, turn) for turn in turns if (coverage := _coverage(turn, options)) is not None]
    if not covered:
        return None
    mean = math.prod(coverage for coverage, _ in covered) ** (1 / len(covered))
    return _probability(mean, _best(turn.result.sure_speedup for _, turn in covered), options)


def uniform(*counter: object) -> float:
    """Return a number in [0, 1) that depends on nothing but its arguments."""
    digest = hashlib.sha256("\0".join(map(str, counter)).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2.0**64


def trajectory_name(prompt: bytes, session: str) -> str:
    """Return a trajectory's name that is the same in every run, unlike a name with verl's random uid.

    Args:
        prompt: tokens of its prompt, which are the same for the same row of a dataset.
        session: number of the rollout of the prompt (verl's `{session}_{output}`).
    """
    return f"{hashlib.sha256(prompt).hexdigest()[:32]}_{session}"


def judge_turns(name: str, turns: Sequence[TurnRecord], step: int, options: PRSOptions) -> list[TurnDecision]:
    """Decide about each turn of one trajectory.

    Args:
        name: the trajectory's name, as `trajectory_name` makes it.
        turns: its turns in order.
        step: the training step in which its prompt was drawn.
        options: the rule and its seed.
    """
    if options.level == "trajectory":
        verdict = _draw(trajectory_probability(turns, options), options.seed, step, name, "trajectory")
        return [verdict for _ in turns]
    return [_draw(keep_probability(turn, options), options.seed, step, name, i) for i, turn in enumerate(turns)]


def prs_metrics(verdicts: Sequence[Sequence[TurnDecision]]) -> dict[str, float]:
    """Return metrics `prs/*` of a batch; a mean over no turn is left out."""
    turns = [verdict for row in verdicts for verdict in row]
    if not turns:
        return {}
    rejected = [verdict for verdict in turns if not verdict.is_kept]
    probabilities = [verdict.probability for verdict in turns if verdict.probability is not None]
    metrics = {
        "prs/rejected_turns": float(len(rejected)),
        "prs/rejected_fraction": len(rejected) / len(turns),
        "prs/eligible_fraction": len(probabilities) / len(turns),
        "prs/rejected_trajectories": float(sum(bool(row) and not any(v.is_kept for v in row) for row in verdicts)),
    }
    if probabilities:
        metrics["prs/kept_probability"] = sum(probabilities) / len(probabilities)
    return metrics


def _coverage(turn: TurnRecord, options: PRSOptions) -> float | None:
    coverage = getattr(turn.result, options.key)
    if not turn.earns or coverage is None or math.isnan(coverage):
        return None
    return float(coverage)


def _probability(coverage: float, speedup: float | None, options: PRSOptions) -> float:
    if options.speedup_threshold is not None and speedup is not None and speedup >= options.speedup_threshold:
        return 1.0
    if options.width == 0:
        return float(coverage >= options.threshold)
    return min(max((coverage - options.threshold) / options.width, 0.0), 1.0)


def _best(speedups: Iterable[float | None]) -> float | None:
    return max((speedup for speedup in speedups if speedup is not None), default=None)


def _draw(probability: float | None, *counter: object) -> TurnDecision:
    return TurnDecision(probability, is_kept=probability is None or uniform(*counter) < probability)
