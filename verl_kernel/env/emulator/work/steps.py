# SPDX-License-Identifier: Apache-2.0
"""Converts a launch to steps of the machine model: loads and instructions, then, if it has products, its stores."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import Literal

import numpy as np

from verl_kernel.env.emulator.counts import LaunchCount, SiteCount, sizes
from verl_kernel.env.emulator.flow import graph
from verl_kernel.env.emulator.flow.graph import Graph, pressures
from verl_kernel.env.emulator.flow.repeats import may_wait
from verl_kernel.env.emulator.lowering.function import Module
from verl_kernel.env.emulator.lowering.writer import LANES
from verl_kernel.env.emulator.ptx.program import STORES, Immediate, Instruction, PtxProgram
from verl_kernel.env.emulator.reuse_distance import Use
from verl_kernel.env.emulator.work import costs
from verl_kernel.env.emulator.work.vectors import joined
from verl_kernel.env.gpus import GPUS
from verl_kernel.env.machine.constants import constant
from verl_kernel.env.trace import Step

# The least time of an iteration of a loop, as results of one iteration are needed by the next.
#
# A value is available one latency after its operands, and loads of shared memory after a barrier wait for the stores
# before it. Nothing else waits: instructions may be issued in any order, so this is a lower bound. Only innermost loops
# whose iterations are alike count. Latencies are the shortest published by micro-benchmarks of NVIDIA's GPUs; they were
# not measured here.


_EACH, _SPECIAL, _SHARED, _BARRIER, _PRODUCT = 4.0, 14.0, 23.0, 20.0, 16.0
"""Cycles: of an instruction, of a special function in addition, of an access to shared memory or other lanes, of a
barrier, of a product of matrices."""
Interaction = Literal["", "meets", "stores", "loads"]
"""How an instruction meets other warps of its block: not, at a barrier, by storing or by loading shared memory."""
_ROUND = 3
"""Iterations over which the time is averaged, after as many iterations that are not counted."""
_STORED, _SHOWN = "%stored", "%shown"
"""The times at which data stored to shared memory is there, and at which other warps see it."""


@dataclass(frozen=True)
class Chain:
    """The chain of dependent instructions in a loop."""

    block: int
    """The number of the block of instructions that the loop begins with."""
    cycles: float
    """The least number of cycles of an iteration."""


def chains(program: PtxProgram) -> list[Chain]:
    """Return the loops of a kernel with the least time of their iterations."""
    graph = Graph(program)
    loop_chains = [Chain(first, _cycles(graph, first, last)) for first, last in _loops(graph)]
    return [chain for chain in loop_chains if chain.cycles]


def _loops(graph: Graph) -> Iterator[tuple[int, int]]:
    """Yield first and last block of each loop whose iterations are alike and do not wait for other blocks."""
    ends = [graph.program.instructions[block.end - 1] for block in graph.blocks]
    jumps = {number: graph.target(item) for number, item in enumerate(ends) if item.root == "bra"}
    for last, first in jumps.items():
        # Jumps within a loop make its iterations differ: it gets no time of its own. Jumps out of it do not.
        inner = [target for number, target in jumps.items() if first <= number < last]
        if first <= last and all(target > last for target in inner) and not may_wait(graph, first, last):
            yield first, last


def _cycles(graph: Graph, first: int, last: int) -> float:
    indices = range(graph.blocks[first].start, graph.blocks[last].end)
    iteration = [
        (_interaction(item), graph.reads[index], graph.writes[index], _latency(item))
        for index, item in ((index, graph.program.instructions[index]) for index in indices)
    ]
    ready_at: dict[str, float] = defaultdict(float)
    # The first iterations have nothing to wait for; what repeats shows in the next ones.
    for _ in range(_ROUND):
        _run_iteration(iteration, ready_at)
    before = dict(ready_at)
    for _ in range(_ROUND):
        _run_iteration(iteration, ready_at)
    return max((time - before[name] for name, time in ready_at.items()), default=0.0) / _ROUND


def _run_iteration(
    iteration: list[tuple[Interaction, tuple[str, ...], tuple[str, ...], float]], ready_at: dict[str, float]
) -> None:
    """Advance the times at which each register is available by one iteration."""
    for interaction, reads, writes, latency in iteration:
        time = max((ready_at[name] for name in reads), default=0.0)
        # All stores before a barrier are visible after it, and no load after it comes sooner.
        if interaction == "meets":
            ready_at[_SHOWN] = max(ready_at[_SHOWN], ready_at[_STORED]) + _BARRIER
        elif interaction == "stores":
            ready_at[_STORED] = max(ready_at[_STORED], time)
        elif interaction == "loads":
            time = max(time, ready_at[_SHOWN])
        for name in writes:
            ready_at[name] = time + latency


def _interaction(item: Instruction) -> Interaction:
    """Classify how an instruction interacts with other warps of its block, through barriers and shared memory."""
    if item.root in ("bar", "barrier"):
        return "meets"
    if "shared" not in item.modifiers and item.root != "ldmatrix":
        return ""
    # An asynchronous copy is waited for elsewhere (`LoadGroup`).
    if item.root == "cp":
        return ""
    return "stores" if item.root in STORES else "loads"


def _latency(item: Instruction) -> float:
    if item.root in ("ld", "atom", "ldmatrix", "shfl", "redux", "vote", "match"):
        return 0.0 if "param" in item.modifiers[:1] else _SHARED
    if item.root == "mma":
        return _PRODUCT
    units = costs.cost(item).units
    if units[costs.SPECIAL]:  # some of the instructions of which it consists run in parallel
        return _SPECIAL + _EACH / 2 * units[costs.ISSUE]
    return _EACH if units[costs.ISSUE] else 0.0


# Groups the loads of a kernel that wait for memory together.
#
# Loads of a block of instructions are under way at the same time, until a load needs the result of an earlier one or
# follows a store, which may change what it reads. Asynchronous copies are under way until the kernel waits for them:
# those of several iterations of a loop at once, if it waits for all but the last ones.


@dataclass(frozen=True)
class LoadGroup:
    """Loads that wait for memory together."""

    block: int
    """The number of their block of instructions."""
    sites: tuple[int, ...]
    """The numbers of their sites."""
    turns: float = 1.0
    """Iterations of a loop whose loads are under way at the same time."""


def groups(program: PtxProgram, module: Module) -> list[LoadGroup]:
    """Group all loads from global memory but those that only wait for other blocks of the launch."""
    index_of = {id(item): index for index, item in enumerate(program.instructions)}
    loads: dict[int, int] = {}
    for number, site in enumerate(module.sites):
        if site.kind in ("global load", "global atomic"):
            loads[index_of[id(site.item)]] = number
    copies_under_way = _copies_under_way(program.instructions)
    load_groups: list[LoadGroup] = []
    for number, (start, end) in enumerate(module.blocks):
        # A loop that polls loads the same words until they change: no wait for memory of the kernel's own.
        if number not in module.polls:
            load_groups += _groups_of_block(program.instructions[start:end], number, start, loads, copies_under_way)
    return load_groups


def _groups_of_block(
    items: Sequence[Instruction], number: int, start: int, loads: dict[int, int], copies_under_way: int
) -> list[LoadGroup]:
    site_groups: list[list[int]] = [[]]
    copies: list[int] = []
    loaded: set[str] = set()
    for index, item in enumerate(items, start):
        site, needs = loads.get(index), set(graph.read(item))
        if site is not None and item.root == "cp":
            copies.append(site)
            continue
        # From here on loads need what earlier ones brought, or may read what was stored: a new group.
        if (site is not None and needs & loaded) or (item.root in ("st", "red") and ".global" in item.opcode):
            site_groups.append([])
            loaded.clear()
        if site is not None:
            site_groups[-1].append(site)
        # What is computed from a load is waited for like the load.
        if site is not None or needs & loaded:
            loaded.update(graph.written(item))
    groups = [LoadGroup(number, tuple(sites)) for sites in site_groups if sites]
    # Copies of several iterations are under way: each commit of an iteration is one group of them.
    commits = sum(item.opcode == "cp.async.commit_group" for item in items)
    return [*groups, LoadGroup(number, tuple(copies), 1 + copies_under_way / max(1, commits))] if copies else groups


def _copies_under_way(items: Sequence[Instruction]) -> int:
    """Return how many groups of copies the kernel leaves under way, at most, when it waits for copies."""
    waits = [item.operands[0] for item in items if item.opcode == "cp.async.wait_group" and item.operands]
    return max((int(operand.text, 0) for operand in waits if isinstance(operand, Immediate)), default=0)


_LINE, _SECTOR = 128, 32
"""Bytes that an SM's memory delivers per cycle, and bytes of a sector."""
_KEPT_SPILLS = 128
"""Bytes per lane of spilled registers that the first-level cache keeps on a full SM."""


@dataclass(frozen=True)
class LaunchWork:
    """What a launch did, as an event of a trace records it (`TraceEvent`)."""

    bytes: int
    flops: int
    half_flops: int
    steps: tuple[Step, ...]
    reads: tuple[int, ...]
    """For each buffer of the launch, bytes that device memory delivers if all that is read again stays in the cache."""
    writes: tuple[int, ...]


def launch_work(count: LaunchCount, facts: KernelFacts | None = None) -> LaunchWork:
    """Compute what a launch did.

    Args:
        count: the result of `Kernel.launch`.
        facts: costs of its kernel; None: those that `facts_of` returns.
    """
    facts = facts or facts_of(count.program, count.module)
    requested = sum(_requested_bytes(site) for site in count.sites)
    count = joined(count)
    products = _products(count, facts)
    flops = int(count.lanes @ facts.flops) + round(sum(operations for operations, _ in products.values()))
    half = round(products["half"][0]) if "half" in products else 0
    return LaunchWork(
        bytes=requested,
        flops=flops,
        half_flops=half,
        steps=_steps(count, facts, products),
        reads=tuple(use.once for use in count.reads),
        writes=tuple(use.once for use in count.writes),
    )


@dataclass(frozen=True)
class KernelFacts:
    """Costs of a kernel that do not depend on its launches; arrays have one entry for each block of instructions."""

    units: np.ndarray
    """Costs of a lane, by unit."""
    flops: np.ndarray
    products: dict[str, np.ndarray]
    """Operations of a warp, by the machine model's unit."""
    operand_bytes: dict[str, int]
    groups: list[LoadGroup]
    staged: list[int]
    """Sites that store operands of products to shared memory."""
    sizes: np.ndarray
    """How many instructions each block has; none where it only waits for other blocks."""
    chains: list[Chain]
    spills: int = 0
    """Bytes of registers that an assembler spills to memory, per thread (`compilation.translation`)."""
    crowded: np.ndarray | None = None
    """By how many registers each block of instructions needs more than a thread has; None if nothing is spilled."""


_FACTS: weakref.WeakKeyDictionary[PtxProgram, KernelFacts] = weakref.WeakKeyDictionary()
"""The facts of each program, computed once."""


def remember(program: PtxProgram, facts: KernelFacts) -> None:
    """Store what `facts_of` returned for the same program in another process."""
    _FACTS[program] = facts


def facts_of(program: PtxProgram, module: Module) -> KernelFacts:
    """Return the costs of a kernel that do not depend on its launches."""
    if program not in _FACTS:
        _FACTS[program] = _computed_facts(program, module)
    return _FACTS[program]


def _computed_facts(program: PtxProgram, module: Module) -> KernelFacts:
    item_costs = [costs.cost(item) for item in program.instructions]
    blocks = [item_costs[start:end] for start, end in module.blocks]
    products = {
        unit: np.array([_flops(unit, block) for block in blocks], np.int64)
        for unit in sorted({cost.product for cost in item_costs if cost.product})
    }
    return KernelFacts(
        units=np.array(
            [[sum(cost.units[unit] for cost in block) for unit in range(costs.UNIT_COUNT)] for block in blocks]
        ),
        flops=np.array([sum(cost.flops for cost in block) for block in blocks], np.int64),
        products=products,
        operand_bytes={cost.product: cost.operand_bytes for cost in item_costs if cost.product},
        groups=groups(program, module),
        staged=_staged(program, module, np.sum([*products.values()], axis=0) > 0) if products else [],
        sizes=sizes(module),
        chains=chains(program),
    )


def _flops(unit: str, block: list[costs.Cost]) -> int:
    return sum(cost.product_flops for cost in block if cost.product == unit)


def _staged(program: PtxProgram, module: Module, multiplies: np.ndarray) -> list[int]:
    """Return the sites that store to shared memory where products may follow."""
    leads = [*map(bool, multiplies), False]
    graph, changed = Graph(program), True
    while changed:
        before = sum(leads)
        for number, block in enumerate(graph.blocks):
            leads[number] |= any(leads[after] for after in block.successors)
        changed = sum(leads) > before
    items = {
        id(item)
        for block, leading in zip(graph.blocks, leads, strict=False)
        if leading
        for item in program.instructions[block.start : block.end]
    }
    return [
        number for number, site in enumerate(module.sites) if site.kind == "shared store" and id(site.item) in items
    ]


def _requested_bytes(site: SiteCount) -> int:
    """Count the bytes that an access requests; lanes that share sectors count once."""
    # A broadcast loads one sector for many lanes.
    return min(site.accesses * site.site.bytes, site.sectors * _SECTOR)


def _products(count: LaunchCount, facts: KernelFacts) -> dict[str, tuple[float, int]]:
    """Return by unit the operations, and products for each operand stored to shared memory; the largest first."""
    flops_of = {unit: float(count.warps_entered @ each) for unit, each in facts.products.items()}
    staged = sum(count.sites[number].accesses * count.sites[number].site.bytes for number in facts.staged)
    total = sum(flops_of.values())
    products = {
        # Products, of two operations each, for each operand that was stored to shared memory.
        unit: (flops, max(1, round(total / 2 * facts.operand_bytes[unit] / staged)) if staged else 0)
        for unit, flops in flops_of.items()
        if flops
    }
    return dict(sorted(products.items(), key=lambda item: -item[1][0]))


def _steps(count: LaunchCount, facts: KernelFacts, products: dict[str, tuple[float, int]]) -> tuple[Step, ...]:
    blocks = _even_blocks(count, facts)
    reads, writes = count.reads, count.writes
    load_bytes = _load_bytes(count, facts.groups)
    total, read = sum(use.total for use in (*reads, *writes)), sum(use.total for use in reads)
    # The busiest unit counts: units work side by side.
    base = Step(
        instructions=round(float(busy_units(count, facts).max())),
        blocks=blocks,
        warps=count.warps,
        in_flight=round(load_bytes if products or not read else load_bytes * total / read),
        block_ns=max(int(constant("program_ns")), _chained_ns(count, facts, blocks)),
        rereads=count.rereads,
        returns=count.returns,
        serial=max(1, round(count.serial)),
    )
    if not products:
        return (_with_spills(_with_traffic(base, [*reads, *writes]), count, facts),)
    # The largest product overlaps with the loads; stores come when it is done.
    (unit, (main_flops, intensity)), *other_products = products.items()
    main = replace(_with_traffic(base, reads), flops=round(main_flops), unit=unit, intensity=intensity)
    other_steps = [
        # `kernels=0`: the launch is paid for once, by its first step.
        Step(flops=round(flops), unit=name, intensity=step_intensity, blocks=blocks, warps=count.warps, kernels=0)
        for name, (flops, step_intensity) in other_products
    ]
    last = _with_traffic(Step(blocks=blocks, warps=count.warps, kernels=0), writes)
    return (_with_spills(main, count, facts), *other_steps, last)


def _even_blocks(count: LaunchCount, facts: KernelFacts) -> int:
    """Return how many blocks as heavy as the heaviest one would do the launch's work."""
    bytes_moved = sum(use.total for use in (*count.reads, *count.writes))
    executed = int(count.lanes @ facts.sizes)
    shares = [
        # A quotient that is a whole number must not become the next one by rounding.
        ceil(total / heaviest - 1e-6)
        for total, heaviest in ((bytes_moved, count.heaviest_bytes), (executed, count.heaviest_work))
        if heaviest
    ]
    # Blocks that do little do not fill the GPU: the launch takes as long as its heaviest blocks.
    return max(1, min([prod(count.shape), *shares]))


def _chained_ns(count: LaunchCount, facts: KernelFacts, blocks: int) -> int:
    """Return the least time of a block due to its loops: the mean over `blocks` blocks."""
    turns = count.warps_entered / (blocks * count.warps)
    return int(sum(turns[chain.block] * chain.cycles for chain in facts.chains) / GPUS["h100"].clock_ghz)


def busy_units(count: LaunchCount, facts: KernelFacts) -> np.ndarray:
    """Return the time of each unit (`costs.UNIT_COUNT`), in instructions of single threads issued in that time."""
    busy = np.asarray(count.warps_entered.astype(np.float64) * LANES @ facts.units)
    busy[costs.SHARED] += sum(map(passes, count.sites)) * LANES * costs.PER_SHARED
    # Each access of a thread moves 4 bytes.
    spilled = _spilled(count, facts) / 4
    busy[costs.ISSUE] += spilled
    busy[costs.SHARED] += spilled * costs.PER_SHARED
    return busy


def passes(site: SiteCount) -> float:
    """Count the cycles, of 128 bytes each, for which an access keeps an SM's memory busy, over all warps."""
    if site.site.item.root in ("cp", "ldmatrix"):
        return 0.0
    if site.site.kind.startswith("shared"):
        return site.sectors
    return max(site.accesses * site.site.bytes, site.sectors * _SECTOR) / _LINE


def _load_bytes(count: LaunchCount, load_groups: list[LoadGroup]) -> float:
    """Return the bytes that a block loads for each time that it waits.

    It waits once for each time that it comes to a group and misses something, as long as for what the group mostly
    reads: device memory, or the second level. A chain of small loads is not hidden by a large one beside it.
    """
    l2_ns, memory_ns = constant("l2_latency_ns"), constant("latency_ns")
    all_sectors, from_memory, waits = 0.0, 0.0, 0.0
    for group in load_groups:
        sites = [count.sites[site] for site in group.sites]
        missed = sum(site.missed for site in sites)
        first = sum(site.missed * _share(count.reads[site.row]) for site in sites)
        # Warps of a block wait at the same time, so the block waits as often as one of them.
        times = max(1.0, count.warps_entered[group.block] / count.warps)
        if missed:
            # At most once for each sector: a wait is for something.
            waits += min(times / group.turns, missed) * max(l2_ns, memory_ns * first / missed)
        all_sectors, from_memory = all_sectors + missed, from_memory + first
    return max(memory_ns * from_memory, l2_ns * all_sectors) * _SECTOR / waits if waits else 0.0


def _share(use: Use) -> float:
    """Return the part of a buffer's reads that device memory answers, if the second level keeps all of it."""
    return use.once / use.total if use.total else 0.0


def _with_traffic(step: Step, uses: list[Use]) -> Step:
    private, shared = ([use for use in uses if use.is_shared is kind] for kind in (False, True))
    return replace(
        step,
        bytes=sum(use.once for use in uses),
        l2_bytes=sum(use.total for use in uses),
        repeated_bytes=sum(use.repeated for use in uses),
        private_bytes=sum(use.once for use in private) // step.blocks,
        shared_bytes=sum(use.extent for use in shared),
    )


def spilling(facts: KernelFacts, program: PtxProgram, module: Module, spills: int, max_registers: int) -> KernelFacts:
    """Add to the facts the spills of a kernel whose threads have at most `max_registers` registers."""
    graph = Graph(program)
    starts = [block.start for block in graph.blocks]
    shortage = [max(0, needed - max_registers) for needed in pressures(graph)]
    crowded = np.array([shortage[bisect_right(starts, start) - 1] for start, _ in module.blocks], np.int64)
    return replace(facts, spills=spills, crowded=crowded)


def _spilled(count: LaunchCount, facts: KernelFacts) -> float:
    """Count the bytes of spilled registers, stored and loaded where more are needed than a thread has.

    The mean over all instructions would make spills cheap by a branch that is never taken.
    """
    # Without a count of registers by block, every instruction counts alike.
    weights = facts.sizes if facts.crowded is None or not facts.crowded.any() else facts.crowded
    executions = float(count.warps_entered @ weights) / max(1, int(weights.sum()))
    # Stored once and loaded once.
    return 2.0 * facts.spills * LANES * executions


def _with_spills(step: Step, count: LaunchCount, facts: KernelFacts) -> Step:
    """Add to a step the spills that the first-level cache does not keep."""
    if facts.spills <= _KEPT_SPILLS:
        return step
    beyond = facts.spills - _KEPT_SPILLS
    spilled_bytes = round(_spilled(count, facts) * beyond / facts.spills)
    # L2 need not keep what a block reads once.
    read_again = min(1.0, step.repeated_bytes / step.bytes) if step.bytes else 0.0
    return replace(
        step,
        l2_bytes=step.l2_bytes + spilled_bytes,
        repeated_bytes=step.repeated_bytes + spilled_bytes,
        private_bytes=round(read_again * step.private_bytes) + beyond * LANES * count.warps,
    )
