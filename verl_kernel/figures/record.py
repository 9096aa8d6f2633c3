# SPDX-License-Identifier: Apache-2.0
"""The scores of a run as a record, which tables and pages show and JSON stores."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

FORMAT = 2
"""Version of the record's format; raised whenever an older record could be misread."""

View = Literal["all answers", "last turn", "best of history"]
"""The answers that a figure covers: every answer, each sample's last one, or each sample's best one."""


class FrozenRecord(BaseModel):
    """An immutable record that accepts no further fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Estimate(FrozenRecord):
    """A figure with its bootstrap interval by task."""

    value: float | None
    """Null where nothing was counted."""
    low: float | None = None
    """Null where there are fewer than two tasks."""
    high: float | None = None


class Figures(FrozenRecord):
    """The figures over some answers."""

    answers: int
    """Denominator of rates: answers that were judged, plus `missing`."""
    missing: int = 0
    """Samples without any answer; each counts as one failure."""
    lost: int = 0
    """Answers that the gym failed to judge; in no figure."""
    values: dict[str, Estimate]
    """Values by name: `figures.known_figures` lists the names in order, with their meanings."""


class Views(FrozenRecord):
    """The same answers seen three ways."""

    all_answers: Figures
    """Every answer; of a single turn, those given at it."""
    last_turn: Figures
    """Each sample's last answer until then."""
    best_of_history: Figures
    """Each sample's best answer until then (`best.best`)."""
    tokens: float | None = None
    """Mean tokens of a sample until then, prompts and answers of all turns; null where one is unknown."""

    def view(self, name: View) -> Figures:
        """Return the figures of a view."""
        figures: Figures = getattr(self, name.replace(" ", "_"))
        return figures


class PassAtK(FrozenRecord):
    """Probability that at least one of k samples of a task passes, mean over tasks."""

    k: int
    criterion: str
    """Name of the figure that a sample must score: `correct`, `fast@1.2` ..."""
    view: View
    estimate: Estimate
    tasks: int
    """Tasks with at least k judged samples; the others are left out."""


class Scores(FrozenRecord):
    """All figures of a run."""

    format: int = FORMAT
    tasks: int
    samples: int
    """Number of samples of each task."""
    turns: int
    answers: int
    """Number of answers in all turns, including those that the gym failed to judge."""
    lost: int
    """Answers that the gym failed to judge."""
    missing: int
    """Samples (task x sample) without any answer."""
    ended_early: int
    """Samples whose last answer came before the last turn that was asked for."""
    verl_acc: Estimate
    """Share of correct last answers over all samples asked for, a lost one counting 0: verl's `val-core/*/acc`."""
    overall: Views
    by_turn: tuple[Views, ...]
    """Views at turn 1, 2, ..."""
    by_level: dict[str, Views] = {}
    by_family: dict[str, Views] = {}
    passes: tuple[PassAtK, ...] = ()
    confidence: float
    resamples: int
    seed: int
    """Seed of the bootstrap."""
