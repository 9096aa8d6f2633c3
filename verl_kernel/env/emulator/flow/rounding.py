# SPDX-License-Identifier: Apache-2.0
"""Finds stores of numbers that were rounded: copies of one number that the compiler keeps may then differ.

Triton keeps a number that several lanes need in each of them. Where each adds its own exact product to the rounded one
of its neighbour (`fma` after `shfl`), the copies differ in the last place, and a change of layout stores all of them
to one address of shared memory. That is harmless on every GPU: whichever stays is a correctly rounded result.
"""

from __future__ import annotations

import numpy as np

from verl_kernel.env.emulator.flow.graph import read, written
from verl_kernel.env.emulator.ptx.program import STORES, Instruction, OperandGroup, PtxProgram, Register

# Results of these may be rounded; the next ones keep a rounded number, or choose between two.
_ROUNDS = frozenset("add sub mul fma mad div rcp sqrt rsqrt ex2 lg2 sin cos tanh mma wgmma".split())
_MOVES = frozenset("mov shfl selp prmt and or shl shr min max neg abs copysign".split())
"""Opcodes whose result may be one of their operands, or an operand with another sign."""
_SHARED = "shared"
"""Stands for shared memory among the names of registers."""
_NEAR = {"f64": 2.0**-40, "f32": 2.0**-16, "f16": 2.0**-7, "bf16": 2.0**-5}
"""Formats, and how far copies may be apart as a part of the number: a few steps of the format, or some more where it
is a sum of several rounded numbers. Where sums cancel, it is an eighth of that part of the largest number that the warp
stores."""
_OF_LARGEST = 1 / 8
"""How much of the largest number's tolerance each number of the warp has."""
_BYTES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2}
"""Bytes of a number of each format."""
Formats = frozenset[str]
"""Formats to which a value may have been rounded."""


def rounded_stores(program: PtxProgram) -> list[tuple[Instruction, Formats]]:
    """Return the stores to shared memory of values that arithmetic has rounded, with the formats of these values."""
    formats_of = _rounded(program)
    stores = []
    for item in program.instructions:
        if item.root in STORES and _SHARED in item.modifiers:
            formats = [formats_of.get(name, Formats()) for name in _values(item)]
            if formats and all(formats):
                stores.append((item, Formats().union(*formats)))
    return stores


def _rounded(program: PtxProgram) -> dict[str, Formats]:
    """Return the formats of all registers with rounded values, and of shared memory by the name `_SHARED`."""
    formats_of: dict[str, Formats] = {}
    is_complete = False
    while not is_complete:
        is_complete = True
        for item in program.instructions:
            formats = _formats(item, formats_of)
            is_shared = item.root in STORES and _SHARED in item.modifiers
            for name in [_SHARED] if is_shared else written(item):
                if not formats <= formats_of.get(name, Formats()):
                    formats_of[name], is_complete = formats_of.get(name, Formats()) | formats, False
    return formats_of


def _formats(item: Instruction, formats_of: dict[str, Formats]) -> Formats:
    if item.root in _ROUNDS or item.root == "cvt":
        names = (name.removesuffix("x2") for name in item.modifiers[::-1] if name.removesuffix("x2") in _NEAR)
        # Only a conversion to fewer bits rounds.
        is_narrowing = item.root == "cvt" and "rn" in item.modifiers
        # The first format that an opcode names is the one of its result.
        return Formats(list(names)[-1:]) if item.root in _ROUNDS or is_narrowing else Formats()
    if item.root in ("ld", "ldmatrix"):
        return formats_of.get(_SHARED, Formats()) if _SHARED in item.modifiers else Formats()
    sources = _values(item) if item.root in STORES else read(item) if item.root in _MOVES else ()
    return Formats().union(*(formats_of.get(name, Formats()) for name in sources))


def _values(item: Instruction) -> list[str]:
    parts = [
        part
        for operand in item.operands[1:]
        for part in (operand.items if isinstance(operand, OperandGroup) else (operand,))
    ]
    return [part.name for part in parts if isinstance(part, Register)]


def are_copies(formats: Formats, stored: np.ndarray, lane: int, memory: bytes) -> bool:
    """Whether what a lane stores differs from what memory holds as two copies of one rounded number may.

    Args:
        formats: formats that the numbers may have.
        stored: a register of all lanes, uint8 (lanes, bytes of the register).
        lane: the lane.
        memory: what memory holds at its address.
    """
    old = np.frombuffer(memory, np.uint8)
    return any(
        _are_near(_numbers(stored, name)[lane], _numbers(old, name), _numbers(stored, name), _NEAR[name])
        for name in formats
        if len(memory) % _BYTES[name] == 0
    )


def _numbers(data: np.ndarray, name: str) -> np.ndarray:
    """Return bytes as numbers of a format, float64."""
    data = np.ascontiguousarray(data)
    if name == "bf16":
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return data.view(f"f{_BYTES[name]}").astype(np.float64)


def _are_near(new: np.ndarray, old: np.ndarray, warp_values: np.ndarray, part: float) -> bool:
    with np.errstate(all="ignore"):
        # Where sums cancel, errors are as large as those of the terms, which the warp's other numbers show.
        largest = np.abs(warp_values[np.isfinite(warp_values)]).max(initial=0.0)
        tolerance = part * np.maximum(np.maximum(np.abs(new), np.abs(old)), _OF_LARGEST * largest)
        return bool(((np.abs(new - old) <= tolerance) | (new == old) | (np.isnan(new) & np.isnan(old))).all())
