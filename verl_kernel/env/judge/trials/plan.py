# SPDX-License-Identifier: Apache-2.0
"""The plan of an evaluation's trials, drawn from the secret: a candidate cannot know which trial is a special one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, cast

from verl_kernel.env.comparison.compare import Agreement
from verl_kernel.env.reference.kinds import ENDS, KINDS, Kind
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import Trials
from verl_kernel.env.seeding import seed_of
from verl_kernel.errors import ConfigError

# `kernelgym.trial_choice`: how many trials of each kind a task gets in training, chosen offline (`verl-kernel aces`).
#
# The file names kinds only, and every kind keeps at least one trial. Inputs and places are still drawn from the secret
# of each evaluation, so a program that has read the file knows neither.


FORMAT = 1
"""Version of the file's format."""
MOST_TRIALS = 64
"""Most trials that a file may give to a task."""
FURTHER_TRIALS = 2
"""Trials at a size that is not the first, of a candidate whose kernels alone compute."""
Counts = Mapping[Kind, int]


@dataclass(frozen=True)
class TrialChoice:
    """Numbers of trials by kind, for the tasks of a file."""

    counts: Mapping[str, Counts] = field(default_factory=dict)
    """By the task's fingerprint."""

    @classmethod
    def read(cls, path: str | None) -> TrialChoice:
        """Read a file; None makes a choice without tasks.

        Raises:
            ConfigError: the file cannot be read, or leaves out a kind.
        """
        if path is None:
            return cls()
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as exc:
            raise ConfigError(f"kernelgym.trial_choice: {path} cannot be read ({exc}): {_REMEDY}") from None
        if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("tasks"), dict):
            raise ConfigError(f"kernelgym.trial_choice: {path} holds no choice of trials: {_REMEDY}")
        return cls({key: _counts(path, entry) for key, entry in data["tasks"].items()})

    def of(self, request: EvalRequest) -> Counts | None:
        """The numbers for a request; None for a task that is not named, and for validation."""
        return None if request.validate else self.counts.get(request.task.fingerprint)


_REMEDY = "write one with `verl-kernel aces`, or leave the option null"


def _counts(path: str, entry: Any) -> Counts:
    counts = entry.get("kinds") if isinstance(entry, dict) else None
    fit = isinstance(counts, dict) and set(counts) == set(KINDS)
    if not fit or not all(type(count) is int and count >= 1 for count in cast(dict[str, Any], counts).values()):
        raise ConfigError(
            f"kernelgym.trial_choice: {path} gives a task the kinds {counts!r}; it must give each of "
            f"{', '.join(KINDS)} one trial or more"
        )
    if sum(cast(Counts, counts).values()) > MOST_TRIALS:
        raise ConfigError(f"kernelgym.trial_choice: {path} gives a task more than {MOST_TRIALS} trials: give fewer")
    return cast(Counts, counts)


@dataclass(frozen=True)
class TrialPlan:
    """Kinds of the trials in order, and numbers of trials."""

    kinds: tuple[Kind, ...]
    ablated: int
    """The ablation comes after this trial at the earliest."""
    inspected: int
    """In this trial the runner looks for functions that were replaced."""
    switched: int | None
    """This trial runs in the other mode (`trials.correctness`). It is never the first; None if there is only one."""

    @property
    def total(self) -> int:
        """How many trials there are."""
        return len(self.kinds)

    @classmethod
    def draw(cls, secret: bytes, total: int) -> TrialPlan:
        """Draw the plan of an evaluation: a drawn, a varied and a large trial and both ends, as many as `total` allows.

        The ablation comes after the varied trial, which shows which stores move data and which compute. Another trial
        follows the ablation, so that a program cannot take the last forward for the ablation.
        """
        kinds: list[Kind] = ["drawn"] * total
        if total == 1:
            return cls(tuple(kinds), 0, secret[2] % total, None)
        # Each choice takes a byte of its own of the secret, so that one place tells nothing of another.
        varied = _varied(secret, total)
        later = [number for number in range(1, total) if number != varied] or [varied]
        kinds[varied] = "varied"
        kinds[later[secret[3] % len(later)]] = "large"
        _add_ends(kinds, secret)
        return cls(tuple(kinds), _ablated(secret, varied, total), secret[2] % total, _switched(secret, total))

    def at_further_size(self, secret: bytes) -> TrialPlan:
        """Return the plan at a size that is not the first: what looks into memory comes before it may end."""
        return replace(self, inspected=secret[2] % min(FURTHER_TRIALS, self.total))

    @classmethod
    def chosen(cls, secret: bytes, counts: Mapping[Kind, int]) -> TrialPlan:
        """Draw a plan with given numbers of trials, at least one of each kind; places are drawn as in `draw`."""
        later_kinds = [kind for kind in KINDS for _ in range(counts[kind] - (kind in ("drawn", "varied")))]
        Random(seed_of(secret, b"kinds")).shuffle(later_kinds)
        total = len(later_kinds) + 2
        varied = _varied(secret, total)
        kinds: list[Kind] = ["drawn", *later_kinds]
        kinds.insert(varied, "varied")
        return cls(tuple(kinds), _ablated(secret, varied, total), secret[2] % total, _switched(secret, total))


def _add_ends(kinds: list[Kind], secret: bytes) -> None:
    """Place both ends if two later trials are free; if one is free, draw one of the ends."""
    random = Random(seed_of(secret, b"ends"))
    free = [number for number in range(1, len(kinds)) if kinds[number] == "drawn"]
    trials = random.sample(free, min(len(ENDS), len(free)))
    for trial, end in zip(trials, random.sample(ENDS, len(ENDS)), strict=False):
        kinds[trial] = end


def _varied(secret: bytes, total: int) -> int:
    # In the first half, since the ablation waits for it.
    return 1 + secret[0] % max(1, (total - 1) // 2)


def _switched(secret: bytes, total: int) -> int:
    return 1 + secret[5] % (total - 1)


def _ablated(secret: bytes, varied: int, total: int) -> int:
    # Before the last trial, or a program could take the last forward for the ablation.
    last = max(varied, total - 2)
    return varied + secret[1] % (last - varied + 1)


def worst(so_far: Trials, agreement: Agreement) -> Trials:
    """Return the summary with one more trial."""

    def larger(first: float | None, second: float | None) -> float | None:
        return max((value for value in (first, second) if value is not None), default=None)

    return Trials(
        passed=so_far.passed + agreement.ok,
        total=so_far.total,
        first_bad_index=agreement.first_bad_index,
        max_abs=larger(so_far.max_abs, agreement.max_abs),
        max_rel=larger(so_far.max_rel, agreement.max_rel),
    )
