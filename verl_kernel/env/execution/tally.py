# SPDX-License-Identifier: Apache-2.0
"""Summarises a launch in numbers that can be compared (`ipc.execution_messages`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from verl_kernel.env.executor.counts import LaunchCount, SiteCount
from verl_kernel.env.executor.library.traffic import VOID_UNITS
from verl_kernel.env.executor.moves import place_of
from verl_kernel.env.executor.work.costs import operations
from verl_kernel.env.executor.work.steps import launch_work
from verl_kernel.env.ipc.execution_messages import Explained, Tally, Work

# Converts a launch that has run to the work that the clock times.


def work(
    variant: str, count: LaunchCount, told: Tally, areas: int, stored: int, computed: int,
    because: Explained | None = None,
) -> Work:  # fmt: skip
    """Return the work of a launch.

    Args:
        variant: digest of its unit.
        count: what the launch did.
        told: its tally.
        areas: how many pieces of the arena it got.
        stored: bytes of its stores.
        computed: bytes of its stores that compute.
        because: what explains it; None if an earlier launch has told.
    """
    done = launch_work(count)
    reads, writes = (
        [(number, size) for number, size in enumerate(sizes[:areas]) if size] for sizes in (done.reads, done.writes)
    )
    return Work(
        variant=variant, bytes=done.bytes, flops=done.flops, half_flops=done.half_flops, stored=stored,
        computed=computed, steps=[step.to_json() for step in done.steps], reads=reads, writes=writes, tally=told,
        explained=because,
    )  # fmt: skip


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
    entered = _entered(count)
    places = _places(count, entered)
    useful, offered = _asked(places.values())
    lanes = useful / max(_awake(count, entered), _LEAST_AWAKE)
    stores = _asked([sites for (root, _), sites in places.items() if root not in ("ld", "cp")])
    areas, stored = {}, _stored(count)
    for name, number in names.items():
        read, written = count.reads[number], count.writes[number]
        once = written.once if stored is None else min(stored, written.once)
        areas[name] = [sizes[number], read.once, read.total, once, written.total]
    done = {unit: round(value) for unit, value in operations(count).items()}
    return Tally(
        kernel=kernel, grid=list(count.shape), operations=done,
        types={name: str(kind) for name, kind in signature.items()},
        useful=round(useful), offered=round(offered), lanes=round(lanes), areas=areas, guessed=[],
        voids=dict(zip(VOID_UNITS, count.voids, strict=True)), stores=[*map(round, stores)],
    )  # fmt: skip


_LEAST_AWAKE = 1e-6
"""Where nothing was accessed, or next to nothing, lanes are not a division by zero."""


def _places(count: LaunchCount, entered: Sequence[int]) -> dict[tuple[str, object], list[tuple[int, int]]]:
    """Return, by opcode and place, for each site the bytes of all lanes and of lanes that masks let through."""
    places: dict[tuple[str, object], list[tuple[int, int]]] = {}
    for site, lanes in _global_sites(count, entered):
        key = place_of(site.site.item) if site.site.item.root == "cp" else id(site.site.item)
        places.setdefault((site.site.item.root, key), []).append(_bytes(site, lanes))
    return places


def _awake(count: LaunchCount, entered: Sequence[int]) -> float:
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
        buffer = root in ("ld", "cp"), max(sites, key=lambda each: each[0].accesses)[0].row
        done = [_bytes(site, lanes) for site, lanes in sites]
        best[buffer] = max(best.get(buffer, 0.0), sum(each for _, each in done) / max(1, _offered(done)))
    weights = {key: (count.reads if key[0] else count.writes)[key[1]].once for key in best}
    return sum(weights[key] * share for key, share in best.items()) / max(1, sum(weights.values()))


def _global_sites(count: LaunchCount, entered: Sequence[int]) -> Iterator[tuple[SiteCount, int]]:
    pairs = zip(count.sites, entered, strict=True)
    return ((site, lanes) for site, lanes in pairs if site.site.kind.startswith("global"))


def _bytes(site: SiteCount, lanes: int) -> tuple[int, int]:
    return lanes * site.site.bytes, site.accesses * site.site.bytes


def _asked(places: Iterable[Sequence[tuple[int, int]]]) -> tuple[float, float]:
    """Return the bytes of lanes that masks let through and of all lanes; mostly idle loads weigh little."""
    parts = [(sum(done for _, done in sites), _offered(sites)) for sites in places]
    useful = float(sum(done for done, _ in parts))
    weighted = sum(done * done / offered for done, offered in parts if done)
    return useful, useful * useful / weighted if weighted else 0.0


def _offered(sites: Sequence[tuple[int, int]]) -> int:
    """Count the bytes of all lanes; prefetches before a loop, whose last iterations then load nothing, count once."""
    most = max(lanes for lanes, _ in sites)
    ahead = sum(done for lanes, done in sites if lanes < most)
    idle = sum(lanes - done for lanes, done in sites if lanes == most)
    return sum(lanes for lanes, _ in sites) - min(ahead, idle)


def _stored(count: LaunchCount) -> int | None:
    """Return the bytes that lanes stored if all went to one buffer: its sectors may hold more than was written."""
    if sum(bool(use.total) for use in count.writes) > 1:
        return None
    kinds = [site for site in count.sites if site.site.kind.startswith("global") and site.site.item.root != "ld"]
    return sum(site.accesses * site.site.bytes for site in kinds)


def _entered(count: LaunchCount) -> list[int]:
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
    leaves = [(key, area_of(item)) for name, told in arguments.items() for key, item in _leaves(name, told)]
    return {key: number for key, number in leaves if number is not None}


def _leaves(name: str, told: Any) -> list[tuple[str, Any]]:
    if isinstance(told, list):
        return [leaf for place, item in enumerate(told) for leaf in _leaves(f"{name}.{place}", item)]
    if isinstance(told, Mapping) and "descriptor" in told:
        return _leaves(name, told["descriptor"]["base"])
    return [(name, told["tensor"])] if isinstance(told, Mapping) and "tensor" in told else []
