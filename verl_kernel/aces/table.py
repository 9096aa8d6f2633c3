# SPDX-License-Identifier: Apache-2.0
"""The table that ACES reads: which candidate passed which test, and which pairs were run at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verl_kernel.errors import DataError

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Table:
    """Candidates (rows) by tests (columns), both arrays (n, m)."""

    passed: Flags
    """False where a candidate failed, crashed or ran out of time, and where the pair was not run."""
    ran: Flags

    @classmethod
    def read(cls, matrix: ArrayLike, mask: ArrayLike | None = None) -> Table:
        """Check a table and keep it.

        Args:
            matrix: (n, m) of 0 and 1 (or booleans); 1 where the candidate passed the test.
            mask: (n, m); false where the pair was never run. None if all were.

        Raises:
            DataError: the table has another shape or other values.
        """
        outcomes = np.asarray(matrix)
        if outcomes.ndim != 2 or 0 in outcomes.shape:
            raise DataError(
                f"the table of results has shape {outcomes.shape}: give candidates by tests, one of each or more"
            )
        ran = np.ones(outcomes.shape, bool) if mask is None else np.asarray(mask, bool)
        if ran.shape != outcomes.shape:
            raise DataError(
                f"the mask has shape {ran.shape} and the table {outcomes.shape}: give one flag for each cell"
            )
        if not np.isin(outcomes[ran], (0, 1)).all():
            raise DataError(
                "the table of results may hold 0 and 1 only: write 0 for a crash or NaN, and mask what never ran"
            )
        return cls((outcomes == 1) & ran, ran)

    @property
    def is_informative(self) -> Flags:
        """Return (m,): whether at least one candidate passed the test and at least one failed it."""
        return np.asarray(self.passed.any(0) & (self.ran & ~self.passed).any(0))

    def columns(self, chosen: Any) -> Table:
        """Return the table reduced to these tests."""
        return Table(self.passed[:, chosen], self.ran[:, chosen])


def outcome_table(rows: Sequence[Sequence[str | None]]) -> tuple[list[list[bool]], list[list[bool]]]:
    """Return matrix and mask of the outcomes of `Judge.survey`: `ok` counts as passed, None as never run."""
    passed = [[outcome == "ok" for outcome in row] for row in rows]
    return passed, [[outcome is not None for outcome in row] for row in rows]


@dataclass(frozen=True)
class IdenticalTests:
    """Tests with identical columns, which count once however often they are repeated."""

    first: NDArray[np.intp]
    """(g,): the first column of each group."""
    number: NDArray[np.intp]
    """(m,): the group of each column."""

    @classmethod
    def find(cls, table: Table) -> IdenticalTests:
        """Group the columns of a table; groups come in the order of their first columns."""
        both = np.concatenate([table.passed, table.ran])
        _, first, number = np.unique(both, axis=1, return_index=True, return_inverse=True)
        order = np.argsort(first)
        return cls(first[order], np.argsort(order)[number.reshape(-1)])

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Return (g,): the number of columns in each group."""
        return np.bincount(self.number)

    def spread(self, values: Floats) -> Floats:
        """Return (m,): the value of each group, divided equally among its columns."""
        return (values / self.sizes)[self.number]
