# SPDX-License-Identifier: Apache-2.0
"""Summarises the changes over a run: its first steps against its last ones, and the validation before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from verl_kernel.reporting.steps import Step, number

WINDOW = 5
_TRAINING = {
    "reward": ("critic/score/mean", True),
    "correct rate": ("kernel/correct_rate", False),
    "fast@1.2": ("kernel/fast@1.2", False),
    "fast@1.2, sure": ("kernel/fast@1.2_sure", False),
    "time coverage": ("kernel/time_coverage/mean", False),
    "hack rate": ("kernel/hack_rate", False),
}
_VALIDATION = {
    "reward": "reward",
    "acc": "correct rate, last turn",
    "best_turn_acc": "correct rate, best turn",
    "last_turn_fast@1.2": "fast@1.2, last turn",
    "best_turn_fast@1.2": "fast@1.2, best turn",
    "last_turn_fast@1.2_sure": "fast@1.2 sure, last turn",
    "best_turn_fast@1.2_sure": "fast@1.2 sure, best turn",
    "last_turn_speedup": "speedup, last turn",
    "best_turn_speedup": "speedup, best turn",
    "speedup": "speedup",
    "time_coverage": "time coverage",
}


@dataclass(frozen=True)
class Change:
    """A figure before and after."""

    name: str
    before: float | None
    after: float | None
    is_factor: bool = False
    """Whether the change is given as a factor; otherwise it is a difference."""

    @property
    def cells(self) -> list[str]:
        """Return name, both values and the change, as text; "-" where one is unknown."""
        values = ["-" if value is None else f"{value:.3f}" for value in (self.before, self.after)]
        return [self.name, *values, self._change()]

    def _change(self) -> str:
        if self.before is None or self.after is None or (self.is_factor and self.before <= 0):
            return "-"
        return f"x {self.after / self.before:.2f}" if self.is_factor else f"{self.after - self.before:+.3f}"


@dataclass(frozen=True)
class Headline:
    """A change as a reader quotes it."""

    name: str
    before: str
    after: str


def headlines(changes: Sequence[Change]) -> list[Headline]:
    """Return the changes whose two ends are known: shares in percent, the reward as it is."""
    return [
        Headline(one.name, _quoted(one.before, one.is_factor), _quoted(one.after, one.is_factor))
        for one in changes
        if one.before is not None and one.after is not None and not one.name.endswith("sure")
    ]


def _quoted(value: float, is_factor: bool) -> str:
    return f"{value:.2f}" if is_factor else f"{value:.0%}"


def window(steps: Sequence[Step]) -> int:
    """Return over how many steps `first_and_last` averages at either end: 5, or half of a shorter run."""
    return min(WINDOW, len(steps) // 2)


def first_and_last(steps: Sequence[Step]) -> list[Change]:
    """Return means over a run's first and last steps; empty if the run has fewer than two."""
    size = window(steps)
    if not size:
        return []
    changes = (
        Change(name, _mean(steps[:size], key), _mean(steps[-size:], key), is_factor)
        for name, (key, is_factor) in _TRAINING.items()
    )
    return [change for change in changes if change.before is not None or change.after is not None]


def before_and_after(validations: Sequence[Step]) -> list[Change]:
    """Compare the first validation with the last, per data source; `after` is unknown if there was only one."""
    if not validations:
        return []
    first, last = validations[0], validations[-1]
    sources = dict.fromkeys(key.rpartition("/")[0] for one in (first, last) for key in one if key != "step")
    return [
        Change(
            f"{source}: {name}" if len(sources) > 1 else name,
            number(first.get(f"{source}/{figure}")),
            number(last.get(f"{source}/{figure}")) if len(validations) > 1 else None,
        )
        for source in sources
        for figure, name in _VALIDATION.items()
        if f"{source}/{figure}" in first or f"{source}/{figure}" in last
    ]


def changes_table(changes: Sequence[Change], title: str, *ends: str) -> Table:
    """Lay changes out as a table with one row each.

    Args:
        changes: figures.
        title: title of the table.
        ends: headings of the first and the second value; without a second heading there is no column for it.
    """
    heads = ("", *ends, "change") if len(ends) > 1 else ("", *ends)
    table = Table(*heads, title=title, title_justify="left")
    for change in changes:
        table.add_row(*change.cells[: len(heads)])
    return table


def _mean(steps: Sequence[Step], key: str) -> float | None:
    values = [value for step in steps if (value := number(step.get(key))) is not None]
    return sum(values) / len(values) if values else None
