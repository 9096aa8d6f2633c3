# SPDX-License-Identifier: Apache-2.0
"""Groups references into families: references that a chain of near duplicates connects are one family.

Up to `EXACT` distinct normal forms every pair is compared. Beyond that, MinHash (Broder 1997) selects the pairs to
compare, by bands of equal minima: it misses 2 in 10,000 pairs of similarity 0.7, and fewer of higher similarity.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from verl_kernel.data.normal_form import Shingles, normal_form, shingles, similarity

EXACT = 600
_BANDS, _ROWS = 32, 4


class Families:
    """Families of references, and how similar any two of them are.

    Args:
        references: source texts that parse.
        threshold: smallest similarity of near duplicates, in (0, 1].
    """

    def __init__(self, references: Sequence[str], threshold: float) -> None:
        forms: dict[tuple[str, ...], int] = {}
        self._form_of = [forms.setdefault(normal_form(text), len(forms)) for text in references]
        self._shingles = [shingles(form) for form in forms]
        self._parents = list(range(len(forms)))
        for one, other in pairs(self._shingles):
            if self._root(one) != self._root(other) and self.alike(one, other) >= threshold:
                self._parents[self._root(other)] = self._root(one)

    @property
    def members(self) -> list[list[int]]:
        """Return the indices of the references of each family, ordered by their first ones."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        for place, form in enumerate(self._form_of):
            found[self._root(form)].append(place)
        return list(found.values())

    @property
    def forms(self) -> int:
        """Return the number of distinct normal forms."""
        return len(self._shingles)

    def alike(self, one: int, other: int) -> float:
        """Return the similarity of two normal forms."""
        return similarity(self._shingles[one], self._shingles[other])

    def closest(self, some: Sequence[int], others: Sequence[int]) -> float:
        """Return the similarity of the most similar pair between two sides, among the pairs that are compared."""
        sides = {self._form_of[place] for place in some}, {self._form_of[place] for place in others}
        across = (pair for pair in pairs(self._shingles) if (pair[0] in sides[0]) != (pair[1] in sides[0]))
        return max((self.alike(*pair) for pair in across if {*pair} <= sides[0] | sides[1]), default=0.0)

    def _root(self, form: int) -> int:
        while self._parents[form] != form:
            self._parents[form] = form = self._parents[self._parents[form]]
        return form


def pairs(programs: Sequence[Shingles]) -> Iterator[tuple[int, int]]:
    """Yield pairs of programs that may be near duplicates: all pairs, or those that share a band."""
    if len(programs) <= EXACT:
        yield from combinations(range(len(programs)), 2)
        return
    seen: set[tuple[int, int]] = set()
    for bucket in _buckets(programs):
        for pair in combinations(bucket, 2):
            if pair not in seen:
                seen.add(pair)
                yield pair


def _buckets(programs: Sequence[Shingles]) -> Iterator[list[int]]:
    minima = _minima(programs)
    for band in range(_BANDS):
        found: defaultdict[Hashable, list[int]] = defaultdict(list)
        for place, row in enumerate(minima[:, band * _ROWS : (band + 1) * _ROWS]):
            found[row.tobytes()].append(place)
        yield from (bucket for bucket in found.values() if len(bucket) > 1)


def _minima(programs: Sequence[Shingles]) -> npt.NDArray[np.uint64]:
    """Return each program's smallest shingle hash under each of many hash functions (multiply and shift)."""
    random = np.random.default_rng(0)
    factors = random.integers(1, 2**63, _BANDS * _ROWS, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    addends = random.integers(0, 2**63, _BANDS * _ROWS, dtype=np.uint64)
    hashed = ((np.multiply.outer(program.astype(np.uint64), factors) + addends).min(axis=0) for program in programs)
    return np.array([row >> np.uint64(32) for row in hashed])
