# SPDX-License-Identifier: Apache-2.0
"""Summarises a launch in numbers that can be compared (`ipc.execution_messages`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from verl_kernel.env.emulator.copy_stores import place_of
from verl_kernel.env.emulator.counts import LaunchCount, SiteCount
from verl_kernel.env.emulator.library.traffic import VOID_UNITS
from verl_kernel.env.emulator.reuse_distance import Use
from verl_kernel.env.emulator.work.costs import operations
from verl_kernel.env.emulator.work.steps import launch_work
from verl_kernel.env.ipc.execution_messages import Explained, Tally, Work


def work(
    variant: str,
    count: LaunchCount,
    launch_tally: Tally,
    starts: Sequence[int],
    *,
    stores: tuple[int, int] = (0, 0),
    explanation: Explained | None = None,
) -> Work:
    """Return the work of a launch.

    Args:
        variant: digest of its unit.
        count: what the launch did.
        launch_tally: its tally.
        starts: the address of each piece of the arena that it got.
        stores: bytes of its stores, and of those among them that compute.
        explanation: why it takes its time; None if an earlier launch had the same.
    """
    total = launch_work(count)
    reads = [*_moved(total.reads, count.reads, starts)]
    writes = [*_moved(total.writes, count.writes, starts)]
    return Work(
        variant=variant,
        bytes=total.bytes,
        flops=total.flops,
        half_flops=total.half_flops,
        stored=stores[0],
        computed=stores[1],
        steps=[step.to_json() for step in total.steps],
        reads=reads,
        writes=writes,
        tally=launch_tally,
        explained=explanation,
    )


def _moved(sizes: Sequence[int], uses: Sequence[Use], starts: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the entries of `Work.reads` or `Work.writes`."""
    for number, (size, use, start) in enumerate(zip(sizes, uses, starts, strict=False)):
        if size:
            yield number, size, use.low - start, use.high - start


def tally(
    count: LaunchCount, sizes: Sequence[int], names: Mapping[str, int], kernel: str, signature: Mapping[str, Any]
) -> Tally:
    """Return the tally of a launch.

    Args:
        count: what the launch did.
        sizes: bytes of its areas of memory.
        names: by argument, the number of the area that holds its tensor.
        kernel: the kernel's name.
        signature: types of the kernel's arguments.
    """
    entered = _lanes_entered(count)
    sites_by_access = _sites_by_access(count, entered)
    useful, offered = _useful_and_offered(sites_by_access.values())
    # Lanes that the whole access had, idle instructions of a short row included.
    lanes = useful / max(_active_share(count, entered), _SMALLEST_SHARE)
    stores = _useful_and_offered([sites for (root, _), sites in sites_by_access.items() if root not in ("ld", "cp")])
    areas, stored = {}, _stored_bytes(count)
    for name, number in names.items():  # `Tally.areas`
        read, written = count.reads[number], count.writes[number]
        once = written.once if stored is None else min(stored, written.once)
        areas[name] = [sizes[number], read.once, read.total, once, written.total]
    by_unit = {unit: round(value) for unit, value in operations(count).items()}
    return Tally(
        kernel=kernel,
        grid=list(count.shape),
        operations=by_unit,
        types={name: str(kind) for name, kind in signature.items()},
        useful=round(useful),
        offered=round(offered),
        lanes=round(lanes),
        areas=areas,
        guessed=[],
        voids=dict(zip(VOID_UNITS, count.voids, strict=True)),
        stores=[*map(round, stores)],
    )


_SMALLEST_SHARE = 1e-6
"""Least share of active lanes: a launch that accesses nothing must not divide by zero."""


def _sites_by_access(count: LaunchCount, entered: Sequence[int]) -> dict[tuple[str, object], list[tuple[int, int]]]:
    """Return, by opcode and place, for each site the bytes of all lanes and of lanes that masks let through."""
    sites_by_access: dict[tuple[str, object], list[tuple[int, int]]] = {}
    for site, lanes in _global_sites(count, entered):
        key = place_of(site.site.item) if site.site.item.root == "cp" else id(site.site.item)
        sites_by_access.setdefault((site.site.item.root, key), []).append(_bytes(site, lanes))
    return sites_by_access


def _active_share(count: LaunchCount, entered: Sequence[int]) -> float:
    """Return the share of lanes that masks let through, over all instructions of an access of the source.

    Where a block is far longer than its row, some of them are idle. A buffer counts with its distinct bytes, so that a
    number that all lanes load weighs nothing, and with its best access: idle ones beside it hide no work.
    """
    accesses: dict[tuple[str, object], list[tuple[SiteCount, int]]] = {}
    for site, lanes in _global_sites(count, entered):
        accesses.setdefault((site.site.item.root, place_of(site.site.item)), []).append((site, lanes))
    best: dict[tuple[bool, int], float] = {}
    for (root, _), sites in accesses.items():
        # An instruction that never accessed anything has no buffer of its own.
        buffer = root in ("ld", "cp"), max((site for site, _ in sites), key=lambda site: site.accesses).row
        pairs = [_bytes(site, lanes) for site, lanes in sites]
        share = sum(accessed for _, accessed in pairs) / max(1, _offered(pairs))
        best[buffer] = max(best.get(buffer, 0.0), share)
    weights = {key: (count.reads if key[0] else count.writes)[key[1]].once for key in best}
    return sum(weights[key] * share for key, share in best.items()) / max(1, sum(weights.values()))


def _global_sites(count: LaunchCount, entered: Sequence[int]) -> Iterator[tuple[SiteCount, int]]:
    pairs = zip(count.sites, entered, strict=True)
    return ((site, lanes) for site, lanes in pairs if site.site.kind.startswith("global"))


def _bytes(site: SiteCount, lanes: int) -> tuple[int, int]:
    return lanes * site.site.bytes, site.accesses * site.site.bytes


def _useful_and_offered(accesses: Iterable[Sequence[tuple[int, int]]]) -> tuple[float, float]:
    """Return the bytes of lanes that masks let through and of all lanes; mostly idle loads weigh little."""
    pairs = [(sum(accessed for _, accessed in sites), _offered(sites)) for sites in accesses]
    useful = float(sum(accessed for accessed, _ in pairs))
    # Each access weighs as much as it moves: else idle loads beside it would excuse work that is left out.
    weighted = sum(accessed * accessed / offered for accessed, offered in pairs if accessed)
    return useful, useful * useful / weighted if weighted else 0.0


def _offered(sites: Sequence[tuple[int, int]]) -> int:
    """Count the bytes of all lanes; prefetches before a loop, whose last iterations then load nothing, count once."""
    longest = max(lanes for lanes, _ in sites)
    ahead = sum(accessed for lanes, accessed in sites if lanes < longest)
    idle = sum(lanes - accessed for lanes, accessed in sites if lanes == longest)
    return sum(lanes for lanes, _ in sites) - min(ahead, idle)


def _stored_bytes(count: LaunchCount) -> int | None:
    """Return the bytes that lanes stored if all went to one buffer: its sectors may hold more than was written."""
    if sum(bool(use.total) for use in count.writes) > 1:
        return None
    kinds = [site for site in count.sites if site.site.kind.startswith("global") and site.site.item.root != "ld"]
    return sum(site.accesses * site.site.bytes for site in kinds)


def _lanes_entered(count: LaunchCount) -> list[int]:
    """Return how many lanes reached each site, including those that its guard held back."""
    blocks = {
        id(item): number
        for number, (start, end) in enumerate(count.module.blocks)
        for item in count.program.instructions[start:end]
    }
    return [int(count.lanes[blocks[id(site.site.item)]]) for site in count.sites]


def areas_of(arguments: Mapping[str, Any], area_of: Callable[[Any], int | None]) -> dict[str, int]:
    """Return by argument the number of its tensor's area; elements of tuples are named by their positions.

    Args:
        arguments: the request's arguments.
        area_of: returns the area of a tensor, None if it has none.
    """
    leaves = [(key, area_of(item)) for name, value in arguments.items() for key, item in _leaves(name, value)]
    return {key: number for key, number in leaves if number is not None}


def _leaves(name: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, list):
        return [leaf for index, item in enumerate(value) for leaf in _leaves(f"{name}.{index}", item)]
    if isinstance(value, Mapping) and "descriptor" in value:
        return _leaves(name, value["descriptor"]["base"])
    return [(name, value["tensor"])] if isinstance(value, Mapping) and "tensor" in value else []
