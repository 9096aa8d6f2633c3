# SPDX-License-Identifier: Apache-2.0
"""What instructions cost: how many issue slots of an SM they take, and how long they keep its units busy.

An SM of the H100 issues instructions for 128 threads per cycle. Its units process fewer threads per cycle: 64 for
integers, comparisons, conversions and float64, 32 for shared memory and shuffles, 16 for reductions over a warp,
special functions and conversions of 64-bit integers (after the CUDA C++ Programming Guide, "Arithmetic Instructions",
9.0; its text was not at hand). Costs are counted in instructions of single threads, of which an SM issues 128 per
cycle; units work in parallel. Where PTX writes one instruction and the machine executes several, all of them are
counted: divisions, functions of subnormals, 64-bit integers.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import numpy as np

from verl_kernel.env.emulator.counts import LaunchCount
from verl_kernel.env.emulator.lowering.function import Module
from verl_kernel.env.emulator.lowering.writer import LANES
from verl_kernel.env.emulator.ptx.program import Instruction, PtxProgram
from verl_kernel.env.emulator.work import NARROW, PRODUCTS, WIDE

ISSUE, INTEGER, SPECIAL, SHARED, DOUBLE = range(5)
UNIT_COUNT = 5
"""Indices of a cost: issue slots, then the units."""
PER_SHARED = 4.0
"""An SM issues this many times more instructions per cycle than its shared memory and shuffles process."""
_PER_INTEGER, _PER_SPECIAL, _PER_DOUBLE = 2.0, 8.0, 2.0
"""The same for integers, special functions and float64."""
_FREE = frozenset({"mov", "cvta", "isspacep", "pragma"})
"""Instructions that ptxas usually turns into a renaming of registers, which costs nothing."""
# Only the issue slot of these is counted here; `steps` adds what their sites counted.
_BY_SITE = frozenset({"ld", "st", "atom", "red", "ldmatrix", "stmatrix"})
_BY_PRODUCT = frozenset({"cp", "mma", "ldmatrix"})
"""These are not issued one by one on Hopper: wgmma reads its operands from shared memory, and TMA copies them there."""
_FLOAT = frozenset({"f16", "bf16", "f32", "f64", "f16x2", "bf16x2"})
# Functions of the special function unit.
_SPECIAL = frozenset({"ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh"})
_COUNTED = frozenset({"add", "sub", "mul", "min", "max", "neg", "abs", "div", "copysign"}) | _SPECIAL
"""Instructions that count as floating-point operations."""
_DIVISIONS = {"f32": 10, "f64": 30, "s64": 80, "u64": 80, "s32": 20, "u32": 16, "s16": 16, "u16": 16}
"""How many instructions a division or a remainder takes."""
_EXACT, _APPROXIMATE, _FLUSHED = 8, 4, 2
"""How many instructions a special function takes: correctly rounded; approximate; approximate with subnormals as
zeros."""


@dataclass(frozen=True)
class Cost:
    """The cost of one instruction."""

    units: tuple[float, ...] = (0.0,) * UNIT_COUNT
    flops: int = 0
    """Floating-point operations of a lane, without products of matrices."""
    product: str = ""
    """The machine model's unit for a product of matrices."""
    product_flops: int = 0
    """Floating-point operations of a warp in a product of matrices."""
    operand_bytes: int = 0


def cost(item: Instruction) -> Cost:
    """Return the cost of an instruction; what accesses to memory cost in addition is counted by their sites."""
    root = item.root
    if root == "mma":
        return _product(item)
    # Instructions take parameters from the constant bank, as an operand.
    if root in _BY_PRODUCT or root in _FREE or "param" in item.modifiers[:1]:
        return Cost()
    if root in _BY_SITE:
        return Cost(_units(1))
    kinds = [part for part in item.modifiers if part in _FLOAT]
    flops = _flops(root, kinds[-1]) if kinds else 0
    return Cost(_busy(item, root, kinds[-1] if kinds else item.modifiers[-1] if item.modifiers else ""), flops)


def _product(item: Instruction) -> Cost:
    shape, kind = next(part for part in item.modifiers if part.startswith("m") and "n" in part), item.modifiers[-3]
    rows, sizes = shape.removeprefix("m").split("n")
    columns, depth = sizes.split("k")
    # 8-bit products count as half precision: no credit is given for those that a GPU computes faster.
    unit = {"tf32": "tf32", "f64": "fma"}.get(kind, "half")
    size = {"tf32": 4, "f64": 8, "f16": 2, "bf16": 2}.get(kind, 1)
    return Cost(product=unit, product_flops=2 * int(rows) * int(columns) * int(depth), operand_bytes=size)


def _flops(root: str, kind: str) -> int:
    operations = 2 if root == "fma" else int(root in _COUNTED)
    return operations * (2 if kind.endswith("x2") else 1)


def _busy(item: Instruction, root: str, kind: str) -> tuple[float, ...]:
    if root in ("div", "rem"):
        return _units(_DIVISIONS.get(kind, 10), integer=0 if kind in _FLOAT else _DIVISIONS.get(kind, 16), special=1)
    if root in _SPECIAL:
        is_exact = "approx" not in item.modifiers
        return _units(_EXACT if is_exact else _FLUSHED if "ftz" in item.modifiers else _APPROXIMATE, special=1)
    # A reduction over a warp has half the throughput of a shuffle.
    if root in ("shfl", "redux", "match"):
        return _units(1, shared=1 + (root == "redux"))
    if root in ("popc", "clz", "brev", "bfind", "fns"):
        return _units(1, special=1)
    if root == "cvt":
        return _units(1, special=1) if "64" in item.opcode else _units(1, integer=1)
    if kind in _FLOAT and root in ("add", "sub", "mul", "fma", "mad", "neg", "abs", "copysign"):
        return _units(1, double=int(kind == "f64"))
    # The machine's integers have 32 bits: 64-bit ones take two instructions, their products four.
    wide = 2 if kind.endswith("64") else 1
    if root in ("mul", "mad") and wide == 2 and "wide" not in item.modifiers:
        wide = 4
    return _units(wide, integer=0 if root in ("bra", "bar", "barrier", "ret", "exit") else wide)


def _units(
    issued: float, integer: float = 0, special: float = 0, shared: float = 0, double: float = 0
) -> tuple[float, ...]:
    return (issued, integer * _PER_INTEGER, special * _PER_SPECIAL, shared * PER_SHARED, double * _PER_DOUBLE)


_BUSY = {"issue": ISSUE, "integer": INTEGER, "special": SPECIAL}
"""Units of which busy slots are counted."""
UNITS = (*PRODUCTS, NARROW, WIDE, *_BUSY)
"""Units by which `operations` counts."""
_TABLES: weakref.WeakKeyDictionary[PtxProgram, dict[str, np.ndarray]] = weakref.WeakKeyDictionary()
"""What `_table` returned for each program."""


def operations(count: LaunchCount) -> dict[str, float]:
    """Count a launch's operations by unit: floating-point ones, and slots for which each kind of unit was busy."""
    if count.program not in _TABLES:
        _TABLES[count.program] = _table(count.program, count.module)
    table = _TABLES[count.program]
    busy = {unit: float(count.warps_entered @ table[unit]) * LANES for unit in _BUSY}
    flops = {unit: float(count.lanes @ table[unit]) for unit in (NARROW, WIDE)}
    return {**{unit: float(count.warps_entered @ table[unit]) for unit in PRODUCTS}, **flops, **busy}


def _table(program: PtxProgram, module: Module) -> dict[str, np.ndarray]:
    """Return for each unit what a lane (for products of matrices, a warp) does in each block of instructions."""
    rows: dict[str, list[float]] = {unit: [] for unit in UNITS}
    for start, end in module.blocks:
        items = program.instructions[start:end]
        priced = [(item, cost(item)) for item in items]
        for unit in PRODUCTS:
            rows[unit].append(sum(price.product_flops for _, price in priced if price.product == unit))
        # A lane of a packed instruction computes two halves, which `flops` counts already.
        for unit in (NARROW, WIDE):
            rows[unit].append(sum(price.flops for item, price in priced if _is_narrow(item.opcode) is (unit == NARROW)))
        for unit, unit_index in _BUSY.items():
            rows[unit].append(sum(price.units[unit_index] for _, price in priced))
    return {unit: np.array(values, np.float64) for unit, values in rows.items()}


def _is_narrow(opcode: str) -> bool:
    last = opcode.rpartition(".")[2]
    return last in ("f16", "bf16", "f16x2", "bf16x2")
