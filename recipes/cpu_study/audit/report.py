# SPDX-License-Identifier: Apache-2.0
"""The figures of an audit: a row for each estimator, and the table of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from recipes.cpu_study.audit.arms import ALL, ARMS, NEGATIVE
from recipes.cpu_study.audit.statistics import (
    JackknifeEstimate,
    cosine,
    gram,
    jackknifed,
    mean_gain,
    noise_share,
    snr,
    step_gains,
    steps_of,
)

GOALS = {"first turn": 0, "last turn": -1}
"""Turns whose P(right) is looked at, by name."""


@dataclass(frozen=True)
class StepSettings:
    """What a step is."""

    step: int
    """Groups."""
    rate: float
    """Of Adam."""
    seed: int


def rows(
    gradients: Mapping[str, torch.Tensor], trained: Sequence[bool], targets: Sequence[bool], settings: StepSettings
) -> list[dict[str, Any]]:
    """Return the figures of every arm.

    Args:
        gradients: (n, P) of each arm of `ARMS` and of each goal of `GOALS`, by name.
        trained: which of the n groups are of the tasks that are trained on.
        targets: which are of the tasks whose P(right) counts.
        settings: what a step is.
    """
    own = torch.tensor(trained)
    numbers = own.nonzero()[:, 0]
    products = {name: gram(gradients[name][own], gradients[name][own]) for name in ARMS}
    steps = steps_of(numbers.tolist(), settings.step, settings.seed)
    local = steps_of(range(len(numbers)), settings.step, settings.seed)
    gains = {name: _gains(gradients, name, steps, torch.tensor(targets), settings) for name in ARMS}
    figures = []
    for name, arm in ARMS.items():
        signal = jackknifed(partial(snr, products[name], step=settings.step), len(numbers), settings.seed)
        row: dict[str, Any] = {"arm": name, "title": arm.title, "snr": _figure(signal)}
        row["cosine"] = round(cosine(products[name], local, torch.arange(len(numbers))), 4)
        for goal in GOALS:
            row[f"gain, {goal}"] = _figure(gains[name][goal])
            row[f"ahead, {goal}"] = _figure(gains[name][goal].less(gains[ALL][goal], settings.seed))
        figures.append(row)
    return figures


def negatives_share(gradients: Mapping[str, torch.Tensor], trained: Sequence[bool], seed: int) -> dict[str, float]:
    """Return the share of TRLOO's noise that turns of negative advantage bring, with its interval."""
    own = torch.tensor(trained)
    whole, part = gradients[ALL][own], gradients[NEGATIVE][own]
    figure = partial(noise_share, gram(whole, whole), gram(part, whole))
    return _figure(jackknifed(figure, len(whole), seed))


def table(figures: Sequence[Mapping[str, Any]], share: Mapping[str, float], step: int) -> str:
    """Return the figures as a Markdown table."""
    goals = "".join(f" gain, {goal} | ahead of TRLOO |" for goal in GOALS)
    lines = [f"| estimator | SNR of a step of {step} | cosine |{goals}", "|---|---|---|" + "---|---|" * len(GOALS)]
    for row in figures:
        cells = [row["title"], _cell(row["snr"], "{:.2f}"), f"{row['cosine']:.2f}"]
        for goal in GOALS:
            cells += [_cell(row[f"gain, {goal}"], "{:+.3f}"), _cell(row[f"ahead, {goal}"], "{:+.3f}")]
        lines.append(f"| {' | '.join(cells)} |")
    sentence = f"Turns of negative advantage bring {_cell(share, '{:.2f}')} of the noise of TRLOO's gradient."
    return "\n".join([*lines, "", sentence, ""])


def _gains(
    gradients: Mapping[str, torch.Tensor], arm: str, steps: torch.Tensor, targets: torch.Tensor, settings: StepSettings
) -> dict[str, JackknifeEstimate]:
    """Return an arm's gain by each goal."""
    gains = step_gains(gradients[arm], [gradients[goal] for goal in GOALS], steps, settings.rate)
    return {
        goal: jackknifed(partial(mean_gain, own, steps, targets), len(targets), settings.seed)
        for goal, own in zip(GOALS, gains, strict=True)
    }


def _figure(estimate: JackknifeEstimate) -> dict[str, float]:
    return {name: round(getattr(estimate, name), 5) for name in ("value", "low", "high")}


def _cell(figure: Mapping[str, float], form: str) -> str:
    value, low, high = (form.format(figure[name]) for name in ("value", "low", "high"))
    return f"{value} ({low} to {high})"
