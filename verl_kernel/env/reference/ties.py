# SPDX-License-Identifier: Apache-2.0
"""Runs a reference with the ties of its choices decided the other way.

Torch does not define which of two equal numbers `topk` or `sort` returns first: a CPU and a GPU decide differently. An
output that depends on it has several right values. Numbers too small to be normal count as zero here: a GPU's fast
functions return zero for them, as in a softmax of scores that lie far apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from verl_kernel.env.ops.dispatch_modes import DispatchMode
from verl_kernel.env.trace import TraceEvent

aten = torch.ops.aten
_SMALLEST = 16
"""Numbers below this many times the smallest normal one may be zero after a few more steps."""
_NAMES = frozenset({"topk", "sort", "argsort", "argmax", "argmin", "max", "min", "kthvalue", "median"})


def has_choices(events: Iterable[TraceEvent]) -> bool:
    """Whether a program ran an op that may have to choose between equal numbers."""
    return any(event.name.rpartition("::")[2].partition(".")[0] in _NAMES for event in events)


class TiesDecided(DispatchMode):  # type: ignore[no-untyped-call]
    """Makes the first or the last of equal numbers the one that is chosen.

    Args:
        last: whether the last one is.
    """

    def __init__(self, last: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._last = last

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an op, one that chooses with its ties decided."""
        decided = _DECIDED.get(func)
        return decided(self, *args, **(kwargs or {})) if decided else func(*args, **(kwargs or {}))

    def sorted(self, x: torch.Tensor, dim: int = -1, descending: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        """Sort, equal numbers in the chosen order."""
        # Reversed before and after where the last one is to be chosen: a stable sort then names it first.
        indices = aten.sort.stable(self._key(x, dim), stable=True, dim=dim, descending=descending)[1]
        return self._chosen(x, self._turned_back(indices, x, dim), dim)

    def topk(
        self, x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the first of all sorted numbers."""
        values, indices = self.sorted(x, dim, largest)
        return (values.narrow(dim, 0, k), indices.narrow(dim, 0, k)) if x.dim() else (values, indices)

    def extreme(self, func: Any, x: torch.Tensor, dim: int, keepdim: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Return an extreme number of each row, and its index: max, min, kthvalue and median along a dimension."""
        values, indices = self._chosen(x, self._turned_back(func(self._key(x, dim), dim, True)[1], x, dim), dim)
        return (values, indices) if keepdim or not x.dim() else (values.squeeze(dim), indices.squeeze(dim))

    def index_of(self, func: Any, x: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> torch.Tensor:
        """Return the index of an extreme number: argmax and argmin."""
        if dim is None:
            flat = x.reshape(-1)  # without a dimension, the index is that in the flattened tensor
            index = self._turned_back(func(self._key(flat, 0), 0), flat, 0)
            return index.reshape([1] * x.dim()) if keepdim else index
        return self._turned_back(func(self._key(x, dim), dim, keepdim), x, dim)

    def _key(self, x: torch.Tensor, dim: int) -> torch.Tensor:
        """Return what is compared in place of the numbers, from the other end where the last one is chosen."""
        if x.is_floating_point():  # numbers that a GPU's fast functions may flush to zero are ties with zero
            x = torch.where(x.abs() < _SMALLEST * torch.finfo(x.dtype).smallest_normal, 0.0, x)
        return x.flip(dim) if self._last and x.dim() else x

    def _chosen(self, x: torch.Tensor, indices: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
        return (x.gather(dim, indices) if x.dim() else x.clone()), indices

    def _turned_back(self, indices: torch.Tensor, x: torch.Tensor, dim: int) -> torch.Tensor:
        return x.shape[dim] - 1 - indices if self._last and x.dim() else indices


def _stable(mode: TiesDecided, x: torch.Tensor, *, stable: bool | None, **order: Any) -> Any:
    """Leave a stable sort alone: it promises the order of equal numbers."""
    return aten.sort.stable(x, stable=True, **order) if stable else mode.sorted(x, **order)


_DECIDED: dict[Any, Callable[..., Any]] = {
    aten.sort.default: TiesDecided.sorted,
    aten.sort.stable: _stable,
    aten.topk.default: TiesDecided.topk,
    aten.argsort.default: lambda mode, *args, **kwargs: mode.sorted(*args, **kwargs)[1],
    aten.argmax.default: lambda mode, *args, **kwargs: mode.index_of(aten.argmax.default, *args, **kwargs),
    aten.argmin.default: lambda mode, *args, **kwargs: mode.index_of(aten.argmin.default, *args, **kwargs),
    aten.max.dim: lambda mode, x, dim, keepdim=False: mode.extreme(aten.max.dim, x, dim, keepdim),
    aten.min.dim: lambda mode, x, dim, keepdim=False: mode.extreme(aten.min.dim, x, dim, keepdim),
    aten.kthvalue.default: lambda mode, x, k, dim=-1, keepdim=False: mode.extreme(
        lambda y, d, keep: aten.kthvalue.default(y, k, d, keep), x, dim, keepdim
    ),
    aten.median.dim: lambda mode, x, dim, keepdim=False: mode.extreme(aten.median.dim, x, dim, keepdim),
}
"""By overload: what runs in its place."""
