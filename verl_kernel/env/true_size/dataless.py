# SPDX-License-Identifier: Apache-2.0
"""Tensors without data: ordinary CPU tensors whose storage has addresses without memory.

Unlike tensors of the device `meta` they have distinct addresses, so launches and prices can tell them apart, and
views of them are real views. Reading one ends the process with SIGSEGV; `DatalessMode` prevents every op from that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from types import ModuleType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from verl_kernel.env.ops.dispatch_modes import OpMode
from verl_kernel.env.ops.table import Trait, is_view, op_of

FIRST, END = 1 << 44, 5 << 44
"""Range of addresses that no Linux process uses: far above its program, far below its libraries."""
# 64 TB: room for all tensors of a forward, since addresses are never used again.
_GAP = 1 << 20
"""Bytes left free behind each tensor, or a little less, so that an access past its end is in no other tensor."""


class Undecidable(RuntimeError):
    """A program needs data: it reads a value, or a shape depends on one."""


_ALIGNMENT = 256
"""Alignment of tensors."""
_START_OFFSETS = 4
"""Number of offsets from which a tensor's start is drawn: a candidate must not recognise a tensor without data by an
alignment that real tensors lack."""


class AddressSpace:
    """Assigns addresses, and tracks which tensors have unknown values.

    Args:
        seed: seed of the random places of tensors.
    """

    def __init__(self, seed: int = 0) -> None:
        self._next, self._random = FIRST, Random(seed)
        self.allocated = 0
        """Bytes of all tensors without data so far."""
        self.reasons: list[str] = []
        """Reasons why the program cannot be followed, kept even if it caught the error and continued."""
        self._tainted: set[int] = set()
        """Addresses of real storages to which unknown values were written."""

    def tensor(self, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Create a tensor without data."""
        last = sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
        nbytes = (last + 1) * dtype.itemsize if 0 not in shape else 0
        start = self._next + _ALIGNMENT * self._random.randrange(_START_OFFSETS)
        self._next += nbytes + _GAP + -(nbytes + _GAP) % _GAP
        if self._next > END:
            raise Undecidable("its tensors are larger than a process's address space")
        self.allocated += nbytes
        storage = torch._C._construct_storage_from_data_pointer(start, torch.device("cpu"), nbytes)
        return torch.empty(0, dtype=dtype).set_(storage, 0, tuple(shape), tuple(stride))

    def taint(self, tensor: torch.Tensor) -> None:
        """Mark a tensor to which unknown values were written."""
        if not is_dataless(tensor):
            self._tainted.add(tensor.untyped_storage().data_ptr())

    def is_unknown(self, tensor: torch.Tensor) -> bool:
        """Whether the values of a tensor are unknown."""
        if tensor.layout is not torch.strided:
            return False
        address = tensor.untyped_storage().data_ptr()
        return FIRST <= address < END or address in self._tainted

    def refuse(self, reason: str) -> Undecidable:
        """Return the error for an action that needs data; the reason is kept even if the program catches the error."""
        self.reasons.append(reason)
        return Undecidable(reason)


def is_dataless(tensor: torch.Tensor) -> bool:
    """Whether a tensor has no data."""
    return tensor.layout is torch.strided and FIRST <= tensor.untyped_storage().data_ptr() < END


# Loads torch's shape functions (its device `meta`) without torch's compiler.
#
# The first op on `meta` imports them, and with them `torch._dynamo`. They only use its `disable`, a marker that keeps
# the compiler away from a function. Without the compiler the import takes half the time and memory.


_COMPILER = "torch._dynamo"


def load() -> None:
    """Import the shape functions now rather than at the first dry pass."""
    with without_compiler():
        _ = torch.empty(1, device="meta") + 1


@contextmanager
def without_compiler() -> Iterator[None]:
    """Prevent imports of `torch._dynamo` in the context; does nothing if it is loaded already."""
    if _COMPILER in sys.modules:
        yield
        return
    had = vars(torch).get("_dynamo")
    stand_in: Any = ModuleType(_COMPILER)
    stand_in.disable = _unchanged
    sys.modules[_COMPILER] = stand_in
    torch._dynamo = stand_in
    try:
        yield
    finally:
        if sys.modules.get(_COMPILER) is stand_in:
            del sys.modules[_COMPILER]
        if had is None:
            del torch._dynamo
        else:
            torch._dynamo = had


def _unchanged(function: Callable[..., Any], recursive: bool = True, **options: Any) -> Callable[..., Any]:
    return function


# Runs torch's ops without data: shapes come from torch's shape functions, values exist only where small and known.
#
# A view runs unchanged. Any other op runs on `meta`, and its results are new tensors without data. An op without
# unknown operands and with a small result is computed: integers and booleans up to `KNOWN_INTEGERS` bytes, since
# programs use them as indices and bounds, other types up to `KNOWN_BYTES`. Unwritten memory is never known.


KNOWN_INTEGERS, KNOWN_BYTES = 16 << 20, 16 << 10


class DatalessMode(OpMode):
    """Runs every op in the context without data.

    Args:
        space: address space of its tensors.
    """

    def __init__(self, space: AddressSpace) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._space = space
        self.ops: list[str] = []
        """Names of the ops in the context, without views, in order."""

    def run_op(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run one op.

        Raises:
            Undecidable: the op reads an unknown value, or its shape depends on one.
        """
        name, traits = func._schema.name, op_of(func).traits
        if is_view(func) or Trait.ALIASES in traits:
            return func(*args, **kwargs)
        self.ops.append(name)
        tensors = [leaf for leaf in pytree.tree_leaves((args, dict(kwargs))) if isinstance(leaf, torch.Tensor)]
        is_known = not any(map(self._space.is_unknown, tensors))
        if Trait.ASKS in traits:  # `item` and its like return a number to the host
            if not is_known:
                raise self._space.refuse(f"{name} reads the value of a tensor on the host")
            return func(*args, **kwargs)
        twins: dict[int, torch.Tensor] = {}
        result = self._on_meta(func, args, kwargs, twins)
        if is_known and _is_small(result) and Trait.ALLOCATES not in traits:
            return func(*args, **kwargs)
        # An op that writes in place returns the twin of an argument: its result is that argument, no new tensor.
        originals = {id(twins[id(tensor)]): tensor for tensor in tensors if id(tensor) in twins}
        self._note_writes(func, args, kwargs)
        return pytree.tree_map(lambda leaf: self._dataless_result(leaf, originals), result)

    def _on_meta(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], twins: dict[int, torch.Tensor]
    ) -> Any:
        def twin(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            if id(leaf) not in twins:
                twins[id(leaf)] = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")
            return twins[id(leaf)]

        # Shape functions refuse both: `meta` has no host memory to pin and draws no numbers.
        named = {key: value for key, value in kwargs.items() if key not in ("pin_memory", "generator")}
        if any(item.name == "device" for item in func._schema.arguments):
            named["device"] = torch.device("meta")
        try:
            return func(*pytree.tree_map(twin, args), **pytree.tree_map(twin, named))
        except NotImplementedError:
            text = f"the shape of what {func._schema.name} returns depends on values, or torch does not know it"
            raise self._space.refuse(text) from None

    def _note_writes(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Mark the real tensors that an op writes to as unknown."""
        for number, item in enumerate(func._schema.arguments):
            if item.alias_info is None or not item.alias_info.is_write:
                continue
            written = args[number] if number < len(args) else kwargs.get(item.name)
            for leaf in pytree.tree_leaves(written):
                if isinstance(leaf, torch.Tensor):
                    self._space.taint(leaf)

    def _dataless_result(self, leaf: Any, originals: Mapping[int, torch.Tensor]) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        original = originals.get(id(leaf))
        return self._space.tensor(leaf.shape, leaf.stride(), leaf.dtype) if original is None else original


def _is_small(result: Any) -> bool:
    tensors = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    nbytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    is_whole = not any(tensor.is_floating_point() or tensor.is_complex() for tensor in tensors)
    return nbytes <= (KNOWN_INTEGERS if is_whole and tensors else KNOWN_BYTES)
