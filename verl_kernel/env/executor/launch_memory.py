# SPDX-License-Identifier: Apache-2.0
"""Memory of a launch beside its tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from verl_kernel.env.executor.lowering.writer import LANES
from verl_kernel.env.executor.ptx.program import BITS, Program

if TYPE_CHECKING:
    from verl_kernel.env.executor.kernel import Buffer


def parameters(program: Program, arguments: Sequence[int | float]) -> np.ndarray:
    """The block of parameters that a kernel reads: values in order, zeros for those that it has beyond them."""
    data = bytearray(program.parameter_bytes + 64)
    for item, value in zip(program.parameters, arguments, strict=False):
        data[item.offset : item.offset + item.bytes] = _bytes(value, item.type, item.bytes)
    return np.frombuffer(bytes(data), np.uint8)


def _bytes(value: int | float, kind: str, size: int) -> bytes:
    """A value as a parameter holds it."""
    if isinstance(value, float):
        dtype = {16: np.float16, 32: np.float32, 64: np.float64}[BITS[kind]]
        return np.array(value, dtype).tobytes()
    return (int(value) & (1 << 8 * size) - 1).to_bytes(size, "little")


def local_memory(size: int, warps: int) -> np.ndarray:
    """Length of a lane's local memory in front, then that of all lanes."""
    words = np.zeros((64 + size * warps * LANES + 64) // 8 + 1, np.int64)
    words[0] = size
    return words


def frames(size: int, warps: int) -> tuple[np.ndarray, np.ndarray]:
    """Frames of so many bytes for the warps of a block, and where each of them is."""
    return _aligned(size * warps), np.zeros(warps, np.int32)


def _aligned(size: int) -> np.ndarray:
    """Zeroed memory that begins at a multiple of 64."""
    raw = np.zeros(size + 64, np.uint8)
    start = -int(raw.ctypes.data) % 64
    return raw[start : start + size]


def ranges(buffers: Sequence[Buffer]) -> list[tuple[int, int]]:
    """Address and length of all that a launch may write."""
    written = [(item.written, item.bytes) for item in buffers if item.written]
    return [(item.address, item.bytes) for item in buffers] + written


def shares_words(program: Program) -> bool:
    """Whether a kernel changes halves or bytes by exchanging the words that hold them, as LLVM's atomics on them do."""
    begins = {
        item.operands[0] for item in program.instructions
        if item.opcode == "and.b64" and getattr(item.operands[2], "text", None) == "-4"
    }  # fmt: skip
    exchanges = (item for item in program.instructions if item.root == "atom" and {"cas", "b32"} < {*item.modifiers})
    return any(getattr(item.operands[1], "base", None) in begins for item in exchanges)


def whole_words(buffers: Sequence[Buffer]) -> list[Buffer]:
    """Buffers with all of the words that they begin and end in; those whose written bytes are known as they are."""
    return [item if item.written else _whole(item) for item in buffers]


def _whole(item: Buffer) -> Buffer:
    start, end = item.address & -4, -(-(item.address + item.bytes) // 4) * 4
    return replace(item, address=start, bytes=end - start)
