# SPDX-License-Identifier: Apache-2.0
"""Tensors without data: ordinary CPU tensors whose storage lies at addresses where there is no memory.

Unlike tensors of the device `meta` they have addresses of their own, so launches and prices can tell them apart, and
views of them are real views. Reading one ends the process with SIGSEGV; `DatalessMode` sees to it that no op does.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import torch

FIRST, END = 1 << 44, 5 << 44
"""Addresses that no Linux process has memory at: far above its program, far below its libraries."""
_GAP = 1 << 20
"""Bytes left free behind each tensor, or a little less, so that what runs over its end lies in no tensor."""


class Undecidable(RuntimeError):
    """A program does what cannot be known without data: it reads a value, or a shape depends on one."""


_ALIGNMENT, _PLACES = 256, 4
"""Tensors begin at multiples of the first, at one of so many: alignment tells them from real ones no more than size."""


class AddressSpace:
    """Hands out addresses, and remembers what is not known.

    Args:
        seed: what the places of tensors are drawn from.
    """

    def __init__(self, seed: int = 0) -> None:
        self._next, self._random = FIRST, Random(seed)
        self.allocated = 0
        """Bytes of all tensors without data so far."""
        self.reasons: list[str] = []
        """Why the program cannot be followed, also where it went on as if nothing had happened."""
        self._tainted: set[int] = set()
        """Addresses of real storages that something unknown was written to."""

    def tensor(self, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A new tensor without data."""
        last = sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
        nbytes = (last + 1) * dtype.itemsize if 0 not in shape else 0
        start = self._next + _ALIGNMENT * self._random.randrange(_PLACES)
        self._next += nbytes + _GAP + -(nbytes + _GAP) % _GAP
        if self._next > END:
            raise Undecidable("its tensors are larger than a process's address space")
        self.allocated += nbytes
        storage = torch._C._construct_storage_from_data_pointer(start, torch.device("cpu"), nbytes)
        return torch.empty(0, dtype=dtype).set_(storage, 0, tuple(shape), tuple(stride))

    def taint(self, tensor: torch.Tensor) -> None:
        """Something unknown was written to a tensor."""
        if not is_dataless(tensor):
            self._tainted.add(tensor.untyped_storage().data_ptr())

    def is_unknown(self, tensor: torch.Tensor) -> bool:
        """Whether its values are not known."""
        if tensor.layout is not torch.strided:
            return False
        address = tensor.untyped_storage().data_ptr()
        return FIRST <= address < END or address in self._tainted

    def refuse(self, reason: str) -> Undecidable:
        """The error for something that takes data; the reason is kept even if the program catches it."""
        self.reasons.append(reason)
        return Undecidable(reason)


def is_dataless(tensor: torch.Tensor) -> bool:
    """Whether a tensor has no data."""
    return tensor.layout is torch.strided and FIRST <= tensor.untyped_storage().data_ptr() < END
