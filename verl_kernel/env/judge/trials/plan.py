# SPDX-License-Identifier: Apache-2.0
"""Kinds of an evaluation's trials, and which is ablated or inspected: drawn from the secret, so no program can know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from verl_kernel.env.comparison.compare import Agreement
from verl_kernel.env.reference.kinds import ENDS, KINDS, Kind
from verl_kernel.env.result import Trials
from verl_kernel.env.seeding import seed_of


@dataclass(frozen=True)
class TrialPlan:
    """Kinds of the trials in order, and numbers of trials."""

    kinds: tuple[Kind, ...]
    ablated: int
    """The ablation comes after this trial at the earliest."""
    inspected: int
    """In it the runner looks for functions that were replaced."""
    switched: int | None
    """It is done in the other mode (`judge.other_mode`), never the first one; None where there is no other."""

    @property
    def total(self) -> int:
        """How many trials there are."""
        return len(self.kinds)

    @classmethod
    def draw(cls, secret: bytes, total: int) -> TrialPlan:
        """The plan of an evaluation: one drawn, varied and large trial and both ends, as far as `total` goes.

        The ablation needs the varied trial, by which it shows what moves and what computes, and another trial behind
        it, so that a program which guesses its place has to be right about it.
        """
        kinds: list[Kind] = ["drawn"] * total
        if total == 1:
            return cls(tuple(kinds), 0, secret[2] % total, None)
        varied = _varied(secret, total)
        others = [number for number in range(1, total) if number != varied] or [varied]
        kinds[varied] = "varied"
        kinds[others[secret[3] % len(others)]] = "large"
        _add_ends(kinds, secret)
        return cls(tuple(kinds), _ablated(secret, varied, total), secret[2] % total, _switched(secret, total))

    @classmethod
    def chosen(cls, secret: bytes, counts: Mapping[Kind, int]) -> TrialPlan:
        """A plan with so many trials of each kind, at least one of each; their places are drawn as in `draw`."""
        rest = [kind for kind in KINDS for _ in range(counts[kind] - (kind in ("drawn", "varied")))]
        Random(seed_of(secret, b"kinds")).shuffle(rest)
        total = len(rest) + 2
        varied = _varied(secret, total)
        kinds: list[Kind] = ["drawn", *rest]
        kinds.insert(varied, "varied")
        return cls(tuple(kinds), _ablated(secret, varied, total), secret[2] % total, _switched(secret, total))


def _add_ends(kinds: list[Kind], secret: bytes) -> None:
    """Both ends where two later trials are left, one by chance where one is."""
    random = Random(seed_of(secret, b"ends"))
    left = [number for number in range(1, len(kinds)) if kinds[number] == "drawn"]
    places = random.sample(left, min(len(ENDS), len(left)))
    for place, end in zip(places, random.sample(ENDS, len(ENDS)), strict=False):
        kinds[place] = end


def _varied(secret: bytes, total: int) -> int:
    return 1 + secret[0] % max(1, (total - 1) // 2)


def _switched(secret: bytes, total: int) -> int:
    return 1 + secret[5] % (total - 1)


def _ablated(secret: bytes, varied: int, total: int) -> int:
    last = max(varied, total - 2)
    return varied + secret[1] % (last - varied + 1)


def worst(so_far: Trials, agreement: Agreement) -> Trials:
    """The summary with one trial more."""

    def larger(one: float | None, other: float | None) -> float | None:
        return max((value for value in (one, other) if value is not None), default=None)

    return Trials(
        passed=so_far.passed + agreement.ok, total=so_far.total, first_bad_index=agreement.first_bad_index,
        max_abs=larger(so_far.max_abs, agreement.max_abs), max_rel=larger(so_far.max_rel, agreement.max_rel),
    )  # fmt: skip
