# SPDX-License-Identifier: Apache-2.0
"""The memory that a launch may touch: one area for each storage of its tensors, and the arguments that lie in it.

A bound per storage lets honest pointers into the middle of a tensor pass, and with them an access that leaves one view
for another view of the same storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from verl_kernel.env.devices.cpu.memory.access import Array
from verl_kernel.env.devices.cpu.memory.allocations import ALLOCATIONS, Allocation
from verl_kernel.env.devices.launch_requests import Range

_FAR = 1 << 31
"""An address so many bytes from all tensors is not said to be near one of them."""


@dataclass
class Area:
    """A storage, or a tensor's place in the judge's memory."""

    start: int
    end: int
    tensors: list[tuple[str, torch.Tensor]]
    """Arguments that lie here, by name."""
    allocation: Allocation | None
    """What of it has been written; None if all of it has."""

    def distance(self, address: int) -> int:
        """Bytes between an address and the area; 0 inside."""
        return max(self.start - address, address - self.end + 1, 0)

    def name(self, address: int) -> tuple[str, int]:
        """The argument that an address belongs to or lies next to, and which of its elements it is, from 0."""
        gaps = [_gap(tensor, address) for _, tensor in self.tensors]
        name, tensor = self.tensors[gaps.index(min(gaps))]
        return name, (address - tensor.data_ptr()) // tensor.element_size()


class Areas:
    """The areas of one launch.

    Args:
        arguments: of the kernel, by name.
        ranges: what the launch may touch (`counting.STATE.ranges`), one range for each tensor among the arguments.
    """

    def __init__(self, arguments: Mapping[str, Any], ranges: Sequence[Range]) -> None:
        found: dict[Range, Area] = {}
        for (name, tensor), place in zip(named_tensors(arguments.items()), ranges, strict=True):
            if place[0] < place[1]:
                area = found.setdefault(place, Area(*place, [], ALLOCATIONS.of(tensor)))
                area.tensors.append((name, tensor))
        self.all = sorted(found.values(), key=lambda area: area.start)
        self._starts = np.array([area.start for area in self.all], dtype=np.uint64)

    def split(self, addresses: Array) -> Iterator[tuple[int, Array | None]]:
        """Numbers of the areas that hold some of these addresses, with the lanes that lie there (None for all)."""
        low, high = (int(np.searchsorted(self._starts, end, "right")) - 1 for end in (addresses.min(), addresses.max()))
        if low == high:
            yield low, None
            return
        numbers = np.searchsorted(self._starts, addresses, "right") - 1
        for number in np.unique(numbers):
            yield int(number), numbers == number

    def nearest(self, address: int) -> Area | None:
        """The area that an address lies in or is closest to; None if it is far from all."""
        found = min(self.all, key=lambda area: area.distance(address), default=None)
        return found if found is not None and found.distance(address) < _FAR else None


def named_tensors(arguments: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors among the arguments of a launch, those in tuples, wrappers and descriptors included, in order."""
    for name, value in arguments:
        if isinstance(value, tuple | list):
            yield from named_tensors((f"{name}[{number}]", item) for number, item in enumerate(value))
        else:
            tensor = value if isinstance(value, torch.Tensor) else getattr(value, "base", value)
            if isinstance(tensor, torch.Tensor):
                yield name, tensor


def _gap(tensor: torch.Tensor, address: int) -> tuple[bool, int]:
    """How far an address is from a tensor: one behind its first byte belongs to it rather than one before it."""
    distance = address - tensor.data_ptr()
    return distance < 0, abs(distance)
