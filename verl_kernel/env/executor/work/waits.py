# SPDX-License-Identifier: Apache-2.0
"""Which loads of a kernel wait for memory together.

Loads of a block of instructions are under way at the same time, up to one whose address comes from an earlier one, or
that follows a store, which may change what it reads. Asynchronous copies are under way until the kernel waits for them,
those of several turns of a loop at once where it waits for all but the last ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from verl_kernel.env.executor.flow import graph
from verl_kernel.env.executor.lowering.function import Module
from verl_kernel.env.executor.ptx.program import Constant, Instruction, Program


@dataclass(frozen=True)
class Group:
    """Loads that wait together."""

    block: int
    """Of instructions, by number."""
    sites: tuple[int, ...]
    """By number."""
    turns: float = 1.0
    """Of a loop, whose loads are under way at once."""


def groups(program: Program, module: Module) -> list[Group]:
    """All loads of global memory."""
    places = {id(item): place for place, item in enumerate(program.instructions)}
    loads: dict[int, int] = {}
    for number, site in enumerate(module.sites):
        if site.kind in ("global load", "global atomic"):
            loads[places[id(site.item)]] = number
    left = _left_under_way(program.instructions)
    found: list[Group] = []
    for number, (start, end) in enumerate(module.blocks):
        found += _of_block(program.instructions[start:end], number, start, loads, left)
    return found


def _of_block(items: Sequence[Instruction], number: int, start: int, loads: dict[int, int], left: int) -> list[Group]:
    together: list[list[int]] = [[]]
    copies: list[int] = []
    loaded: set[str] = set()
    for place, item in enumerate(items, start):
        site, needs = loads.get(place), set(graph.read(item))
        if site is not None and item.root == "cp":
            copies.append(site)
            continue
        if (site is not None and needs & loaded) or (item.root in ("st", "red") and ".global" in item.opcode):
            together.append([])
            loaded.clear()
        if site is not None:
            together[-1].append(site)
        if site is not None or needs & loaded:
            loaded.update(graph.written(item))
    groups = [Group(number, tuple(sites)) for sites in together if sites]
    commits = sum(item.opcode == "cp.async.commit_group" for item in items)
    return [*groups, Group(number, tuple(copies), 1 + left / max(1, commits))] if copies else groups


def _left_under_way(items: Sequence[Instruction]) -> int:
    """How many groups of copies the kernel leaves under way when it waits, at most."""
    waits = [item.operands[0] for item in items if item.opcode == "cp.async.wait_group" and item.operands]
    return max((int(one.text, 0) for one in waits if isinstance(one, Constant)), default=0)
