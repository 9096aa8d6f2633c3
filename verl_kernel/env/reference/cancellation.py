# SPDX-License-Identifier: Apache-2.0
"""Runs a reference as a program would that rounds a number differently in each place where it is used.

A kernel may hold one number several times, and the copies may differ in the last bit: sums in another order, products
that are fused in one place and not in another. Where equal numbers cancel, that bit is all that is left. A softmax of
scores near 1e8, where neighbouring float32 numbers are 8 apart, has no digits then: exp(score - maximum) is 1 or
exp(-8), as rounding decides. Inputs that lead there tell nothing about a program.

Every operand of a sum or difference gets a last bit of its own, which is the random rounding of Monte Carlo arithmetic
(Parker, "Monte Carlo Arithmetic", 1997), where it matters.

A recurrence that multiplies its state by exponentials loses nothing by that, but a scan in chunks adds exponents, and
takes differences of their sums: beside long ones, for which the exponential is zero or infinite, others lose their
digits. The same forward notices these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakIdKeyDictionary

from verl_kernel.env.ops.dispatch_modes import OpMode
from verl_kernel.env.ops.table import is_view

_aten = torch.ops.aten
_SUMS = frozenset({"add", "sub", "rsub"})
_SOFTMAX = frozenset({"_softmax", "_log_softmax", "_safe_softmax"})
_EXPONENTIALS = frozenset({"exp", "exp2"})
_LONG = 128.0
"""Size of exponents beyond which the exponential is zero or infinite in float32."""
_LAST_BIT = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}
"""Between half a unit and a unit in the last place, relative to a number: it moves at most to its neighbour.

Narrower types stay as they are: who computes in them has given up these digits in every place alike.
"""


@contextmanager
def rounded_apart(seed: int = 0) -> Iterator[RoundedApart]:
    """Give operands of sums and differences, and the two uses of a softmax's scores, last bits of their own."""
    with sdpa_kernel(SDPBackend.MATH), RoundedApart(seed) as mode:  # attention shows its scores only in that form
        yield mode


class RoundedApart(OpMode):  # type: ignore[no-untyped-call]
    """Replaces these ops; every other one runs as it is."""

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator = torch.Generator().manual_seed(seed)
        self._has_long_exponent = self._has_product = False
        self._exponentials = WeakIdKeyDictionary()
        """Exponentials, their products, and sums with these."""

    @property
    def adds_long_exponents(self) -> bool:
        """Whether exponentials were multiplied, and one had a long exponent."""
        return self._has_long_exponent and self._has_product

    def run_op(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run an op on operands whose last bit may have changed."""
        name, factors = func.overloadpacket.__name__, sum(item in self._exponentials for item in args)
        plain = name.rstrip("_")
        if plain in _EXPONENTIALS:
            self._has_long_exponent |= bool((args[0].abs() > _LONG).any())
        result = self._rounded(name, func, args, kwargs)
        self._has_product |= (plain == "mul" and factors > 1) or (plain == "cumprod" and factors > 0)
        if plain in _EXPONENTIALS or (factors and (plain in {"add", "sub", "mul"} or is_view(func))):
            self._exponentials.update((leaf, None) for leaf in pytree.tree_leaves(result))
        return result

    def _rounded(self, name: str, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if name in _SUMS:  # in place, only the other operand: the first is where the result goes
            return func(*(self._with_last_bit(operand) for operand in args), **kwargs)
        if name in _SOFTMAX:
            return self._softmax(*args[:2], is_log=name == "_log_softmax")
        return func(*args, **kwargs)

    def _softmax(self, scores: torch.Tensor, dim: int, *, is_log: bool) -> torch.Tensor:
        wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
        # The scores are used twice, in the numerator and in the sum: each use gets last bits of its own.
        maximum = wide.amax(dim, keepdim=True) if scores.dim() else wide
        shifted = self._with_last_bit(wide) - self._with_last_bit(maximum)
        total = (self._with_last_bit(wide) - self._with_last_bit(maximum)).exp().sum(dim, keepdim=True)
        result: torch.Tensor = shifted - total.log() if is_log else shifted.exp() / total
        return result.to(scores.dtype)

    def _with_last_bit(self, value: Any) -> Any:
        """Return a tensor whose numbers have moved to a neighbour, or stayed, by chance; all else as it is."""
        if not isinstance(value, torch.Tensor) or value.dtype not in _LAST_BIT:
            return value
        steps = torch.randint(-1, 2, value.shape, generator=self._generator, dtype=torch.int8).to(value.device)
        moved = torch.addcmul(value, value, steps.to(value.dtype), value=_LAST_BIT[value.dtype])
        return torch.where(value.isfinite(), moved, value)  # of a mask's infinities, zero times would be NaN
