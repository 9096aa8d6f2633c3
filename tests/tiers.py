# SPDX-License-Identifier: Apache-2.0
"""Which cases `make test` runs; the others are marked `exhaustive`, and `make test-all` runs them too."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import pytest
from allpairspy import AllPairs

Case = TypeVar("Case")


def thinned(cases: Iterable[Case], every: int = 2) -> list[Any]:
    """Return all cases, of which the first of every so many stays in `make test`."""
    return [case if number % every == 0 else _exhaustive(case) for number, case in enumerate(cases)]


def one_of_each(cases: Iterable[Case], key: Callable[[Case], Hashable]) -> list[Any]:
    """Return all cases, of which the first with each value of `key` stays in `make test`."""
    seen = set[Hashable]()
    return [case if _is_new(key(case), seen) else _exhaustive(case) for case in cases]


def pairwise(**axes: Sequence[Any]) -> list[dict[str, Any]]:
    """Return choices of one value from each axis, in which each pair of values of two axes occurs."""
    return [dict(zip(axes, values, strict=True)) for values in AllPairs(list(axes.values()))]


def _exhaustive(case: Any) -> Any:
    return pytest.param(case, marks=pytest.mark.exhaustive)


def _is_new(value: Hashable, seen: set[Hashable]) -> bool:
    is_new = value not in seen
    seen.add(value)
    return is_new
