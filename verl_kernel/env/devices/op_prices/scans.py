# SPDX-License-Identifier: Apache-2.0
"""Running sums and their like: one device-wide scan of a single row, else blocks of rows (after torch's source)."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from verl_kernel.env.devices.op_prices.call import Call, streamed
from verl_kernel.env.trace import Step

_THREADS = 512
"""Most threads of a block that scans rows."""
_ROW_THREADS = (16, 512)
"""Fewest and most of them that share a row of the last dimension."""


def scanned(call: Call) -> list[Step]:
    """A single row in one pass of all blocks, after a kernel that clears what they tell each other."""
    if call.data.numel() != _length(call):
        return scanned_rows(call)
    return [replace(streamed(call.bytes, "contiguous", call.data.numel(), call.flops), kernels=2)]


def scanned_rows(call: Call) -> list[Step]:
    """One pass along rows, each of which is one block's; torch scans so even a single row where it keeps indices."""
    data, length = call.data, _length(call)
    dim = int(call.given["dim"]) % max(1, data.dim())
    is_last = dim + 1 >= data.dim()
    outer, inner = prod(data.shape[:dim]), prod(data.shape[dim + 1 :])
    blocks, threads, at_once = _last(outer, length) if is_last else _other(outer, inner)
    moved = call.bytes // data.numel()
    return [Step(call.bytes, "scan", call.flops, blocks=blocks, warps=-(-threads // 32), in_flight=at_once * moved)]


def _length(call: Call) -> int:
    return call.data.shape[int(call.given["dim"])] if call.data.dim() else 1


def _last(rows: int, length: int) -> tuple[int, int, int]:
    """Blocks, their threads and the elements that one scans at a time: along the last dimension two a thread."""
    spare = 9 + (length - 1).bit_length() - (rows - 1).bit_length()
    fewest, most = _ROW_THREADS
    across = min(max(fewest, 1 << max(0, spare) // 2), most)
    down = _THREADS // across
    return -(-rows // down), _THREADS, min(rows, down) * min(length, 2 * across)


def _other(outer: int, inner: int) -> tuple[int, int, int]:
    """The same along another dimension, where a thread goes along a row alone."""
    threads = min(_THREADS, inner)
    return outer * -(-inner // threads), threads, threads
