# SPDX-License-Identifier: Apache-2.0
"""What a launch computed, by unit: numbers that can be compared between launches of a kernel at several sizes."""

from __future__ import annotations

import weakref

import numpy as np

from verl_kernel.env.executor.counts import LaunchCount
from verl_kernel.env.executor.lowering.function import Module
from verl_kernel.env.executor.lowering.writer import LANES
from verl_kernel.env.executor.ptx.program import Program
from verl_kernel.env.executor.work import costs
from verl_kernel.env.executor.work.unit_names import NARROW, PRODUCTS, WIDE

_BUSY = {"issue": costs.ISSUE, "integer": costs.INTEGER, "special": costs.SPECIAL}
UNITS = (*PRODUCTS, NARROW, WIDE, *_BUSY)
_TABLES: weakref.WeakKeyDictionary[Program, dict[str, np.ndarray]] = weakref.WeakKeyDictionary()


def operations(count: LaunchCount) -> dict[str, float]:
    """Operations of the launch by unit: floating-point ones, and how many places each kind of unit was busy for."""
    if count.program not in _TABLES:
        _TABLES[count.program] = _table(count.program, count.module)
    table = _TABLES[count.program]
    busy = {unit: float(count.warps_entered @ table[unit]) * LANES for unit in _BUSY}
    flops = {unit: float(count.lanes @ table[unit]) for unit in (NARROW, WIDE)}
    return {**{unit: float(count.warps_entered @ table[unit]) for unit in PRODUCTS}, **flops, **busy}


def _table(program: Program, module: Module) -> dict[str, np.ndarray]:
    """For each unit, what a lane, or of products a warp, does in each block of instructions."""
    rows: dict[str, list[float]] = {unit: [] for unit in UNITS}
    for start, end in module.blocks:
        items = program.instructions[start:end]
        each = [(item, costs.cost(item)) for item in items]
        for unit in PRODUCTS:
            rows[unit].append(sum(one.product_flops for _, one in each if one.product == unit))
        for unit in (NARROW, WIDE):
            rows[unit].append(sum(one.flops for item, one in each if _is_narrow(item.opcode) is (unit == NARROW)))
        for unit, place in _BUSY.items():
            rows[unit].append(sum(one.units[place] for _, one in each))
    return {unit: np.array(values, np.float64) for unit, values in rows.items()}


def _is_narrow(opcode: str) -> bool:
    last = opcode.rpartition(".")[2]
    return last in ("f16", "bf16", "f16x2", "bf16x2")
