# SPDX-License-Identifier: Apache-2.0
"""Sorts and selections: passes over keys by their digits, where a row does not stay on the chip."""

from __future__ import annotations

from verl_kernel.env.devices.op_prices.call import Call, nbytes, streamed
from verl_kernel.env.devices.op_prices.moves import copied
from verl_kernel.env.trace import Step

_PLACE_BYTES = 8
"""Of the place that is sorted with a key."""
_KEPT = 4096
"""Longest row that one block sorts on the chip (torch's source)."""


def radix(count: int, key_bytes: int) -> list[Step]:
    """A radix sort by digits of 8 bits: each pass reads and writes keys and places."""
    moved = 2 * (key_bytes + _PLACE_BYTES) * count
    return [streamed(moved, "mixed", count) for _ in range(key_bytes)]


def sorted_rows(call: Call) -> list[Step]:
    """Short rows in one pass; long ones, and all elements where no dimension is named, digit by digit."""
    data = call.data
    length = data.shape[call.given["dim"]] if data.dim() and "dim" in call.given else data.numel()
    if length <= _KEPT:
        return copied(call)
    return [*radix(data.numel(), data.element_size()), streamed(nbytes(call.output), "mixed", call.output.numel())]


def selected(call: Call) -> list[Step]:
    """A block for a row reads it once for each digit, and once to pick."""
    data = call.data
    if "dim" not in call.given:
        return sorted_rows(call)
    again = data.element_size() * nbytes(data)
    length = data.shape[call.given["dim"]] if data.dim() else 1
    return [
        Step(
            call.bytes, "mixed", call.flops, blocks=max(1, data.numel() // max(1, length)), warps=8,
            l2_bytes=call.bytes + again, repeated_bytes=again, private_bytes=length * data.element_size(),
        )
    ]  # fmt: skip
