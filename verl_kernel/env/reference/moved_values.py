# SPDX-License-Identifier: Apache-2.0
"""Tells whether a forward returns values that it was given: which ones, and in which places, it may compute.

A sampler that accepts drafted tokens, a cache that is read by pages: what such a task computes decides, and the numbers
come out as they went in. A kernel that only copies does its whole work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

import torch

from verl_kernel.env.ops.call import bound, tensors_in
from verl_kernel.env.ops.dispatch_modes import OpMode, changed
from verl_kernel.env.ops.reads import storage_of
from verl_kernel.env.ops.table import Trait, is_view, op_of
from verl_kernel.env.reference.roles import same_bytes

_DECIDING = ("index", "indices", "mask", "condition")
"""Names of arguments that say which elements an op moves, and where to."""
_SPARSE = -1
"""In place of the address of a tensor whose numbers do not lie in one storage."""


class _Origin(IntEnum):
    CONSTANT = 0
    GIVEN = 1
    COMPUTED = 2


class MovedValues(OpMode):
    """Follows where the numbers of a forward come from, by storage.

    Args:
        given: its inputs and weights.
    """

    def __init__(self, given: Sequence[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._origins = {_SPARSE: _Origin.COMPUTED, **dict.fromkeys(map(_storage, given), _Origin.GIVEN)}

    def include(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> bool:
        """Whether outputs hold given values and constants only, and none is an input as it was."""
        # To return an input decides nothing: a condition that never holds makes no difference.
        is_same = any(same_bytes(output, tensor) for output in outputs for tensor in inputs)
        return not is_same and max(map(self._origin, outputs), default=_Origin.CONSTANT) is _Origin.GIVEN

    def run_op(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run one op, and note the origin of what it returns or changes."""
        result = func(*args, **kwargs)
        if not is_view(func):
            origin = self._origin_of(func, args, kwargs)
            for tensor in changed(func._schema, args, kwargs):
                self._origins[_storage(tensor)] = max(origin, self._origin(tensor))
            # What is new may have an address at which there was another tensor, which is gone.
            known = {_SPARSE, *map(_storage, tensors_in((args, kwargs)))}
            self._origins |= dict.fromkeys({*map(_storage, tensors_in(result))} - known, origin)
        return result

    def _origin_of(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Origin:
        op = op_of(func)
        if not op.is_free and Trait.MOVES not in op.traits:
            return _Origin.COMPUTED
        unread = op.unread_place(func._schema.name)
        skipped = {*_DECIDING, *([] if unread is None else [func._schema.arguments[unread].name])}
        moved = [value for name, value in bound(func, args, kwargs).items() if name not in skipped]
        return max(map(self._origin, tensors_in(moved)), default=_Origin.CONSTANT)

    def _origin(self, tensor: torch.Tensor) -> _Origin:
        return self._origins.get(_storage(tensor), _Origin.CONSTANT)


def _storage(tensor: torch.Tensor) -> int:
    return storage_of(tensor) if tensor.layout is torch.strided else _SPARSE
