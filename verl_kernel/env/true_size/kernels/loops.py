# SPDX-License-Identifier: Apache-2.0
"""Long `for` loops of kernels are cut: some turns stand for all.

Of a `range` of more than `WHOLE` turns the first two, the last and some between run; what those between do counts for
the turns they stand for, in nested loops for the product. Loops of Triton's own functions and `while` loops run whole.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from random import Random
from typing import Any

from triton.runtime import interpreter

from verl_kernel.env.devices.cpu.language import triton_objects
from verl_kernel.env.tamper.callers import is_library
from verl_kernel.env.true_size.kernels.meter import Meter

WHOLE = 8
_BETWEEN = 5


class Loops:
    """The loops of this process's launches.

    Args:
        random: draws the turns.
    """

    def __init__(self, random: Random) -> None:
        self.meter = Meter()
        """Of the launch that runs."""
        self._random = random

    def install(self) -> None:
        """Put cut loops in the place of `range`, `tl.range` and `tl.static_range` (once, before a kernel is read)."""

        def cut_range(*bounds: Any) -> Iterable[int]:
            return self._cut(range(*map(operator.index, bounds)))

        triton_objects.BUILTINS["range"] = cut_range
        interpreter._patch_lang_core = self._patching(interpreter._patch_lang_core)

    def _patching(self, original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def patch(lang: Any, scope: Any) -> None:
            original(lang, scope)
            scope.set_attr(lang, "range", self._language_range)
            scope.set_attr(lang, "static_range", self._language_range)

        return patch

    def _language_range(self, first: Any, second: Any = None, step: Any = None, **options: Any) -> Iterable[int]:
        bounds = (0, first) if second is None else (first, second)
        turns = range(*map(operator.index, (*bounds, 1 if step is None else step)))
        return turns if is_library(sys._getframe(1).f_code.co_filename) else self._cut(turns)

    def _cut(self, turns: range) -> Iterable[int]:
        return turns if len(turns) <= WHOLE else self._some(turns)

    def _some(self, turns: range) -> Iterator[int]:
        yield turns[0]
        yield turns[1]
        count = len(turns) - 3
        for number in range(_BETWEEN):
            start, end = 2 + count * number // _BETWEEN, 2 + count * (number + 1) // _BETWEEN
            with self.meter.standing_for(end - start):
                yield turns[self._random.randrange(start, end)]
        yield turns[-1]
