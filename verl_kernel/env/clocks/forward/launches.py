# SPDX-License-Identifier: Apache-2.0
"""Joins a forward's own launches with the executing process's account of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from verl_kernel.env.tamper.trace_checks import own_launches
from verl_kernel.env.trace import TraceEvent

if TYPE_CHECKING:
    from verl_kernel.env.ipc.execution_messages import Explained, Tally, Work

Key = tuple[str, tuple[int, ...], tuple[int, ...]]
"""Identifies launches that do the same: code, grid, and sizes of the tensors' memory."""
Role = Literal["input", "intermediate", "output"]


@dataclass(frozen=True)
class OwnLaunch:
    """A launch of the candidate with its account."""

    index: int
    """Number of its event in the forward."""
    event: TraceEvent
    key: Key
    tally: Tally
    explained: Explained
    numbers: Mapping[int, int]
    """By area, the number of its tensor in the forward (`TraceEvent.touched`)."""

    @property
    def areas(self) -> dict[int, str]:
        """Return by area the arguments whose tensors it holds, joined by slashes."""
        names: defaultdict[int, list[str]] = defaultdict(list)
        for name, area in self.explained["names"].items():
            names[area].append(name)
        return {area: "/".join(some) for area, some in names.items()}

    def tensor(self, name: str) -> str:
        """Return all arguments that share an argument's memory, joined by slashes."""
        return self.areas[self.explained["names"][name]]

    @property
    def products(self) -> int:
        """Return the operations of products on tensor cores."""
        return self.tally["operations"]["half"] + self.tally["operations"]["tf32"]


def explanations(accounts: Iterable[Sequence[Work]]) -> dict[Key, Explained]:
    """Return what explains launches, from the accounts of all forwards."""
    works = (work for account in accounts for work in account)
    return {_key(work): explained for work in works if (explained := work["explained"]) is not None}


def join(
    events: Sequence[TraceEvent], account: Sequence[Work], source: str, explained_by_key: Mapping[Key, Explained]
) -> list[OwnLaunch]:
    """Return the candidate's launches in a forward.

    Args:
        events: the forward's events.
        account: what its launches did, in order.
        source: the candidate's file.
        explained_by_key: what explains launches.
    """
    own = {id(event) for event in own_launches(events, source)}
    indices = [index for index, event in enumerate(events) if id(event) in own]
    return [
        OwnLaunch(
            index, events[index], _key(work), work["tally"], explained_by_key[_key(work)], _numbers(events[index], work)
        )
        for index, work in zip(indices, account, strict=True)
        if _key(work) in explained_by_key
    ]


def _key(work: Work) -> Key:
    tally = work["tally"]
    return work["variant"], tuple(tally["grid"]), tuple(area[0] for area in tally["areas"].values())


def _numbers(event: TraceEvent, work: Work) -> dict[int, int]:
    """Return the numbers of the tensors that a launch touched; {} if the trace names others."""
    areas = list(dict.fromkeys(area for uses in (work["reads"], work["writes"]) for area, *_ in uses))
    touched = [number for number, _, _ in event.touched]
    return dict(zip(areas, touched, strict=True)) if len(areas) == len(touched) else {}


@dataclass(frozen=True)
class Flow:
    """Which events of a forward write and read each tensor, by their numbers."""

    writers: Mapping[int, Sequence[int]]
    readers: Mapping[int, Sequence[int]]

    @classmethod
    def of(cls, events: Sequence[TraceEvent]) -> Flow:
        """Read the flow of data off a trace."""
        writers: defaultdict[int, list[int]] = defaultdict(list)
        readers: defaultdict[int, list[int]] = defaultdict(list)
        for index, event in enumerate(events):
            for number, read, written in event.touched:
                if read:
                    readers[number].append(index)
                if written:
                    writers[number].append(index)
        return cls(dict(writers), dict(readers))

    def role(self, index: int, number: int | None) -> Role:
        """Return what a tensor is to the event at a place; None stands for an unknown tensor."""
        writers = self.writers.get(number, ()) if number is not None else ()
        readers = self.readers.get(number, ()) if number is not None else ()
        if index in writers:
            return "intermediate" if any(neighbour > index for neighbour in readers) else "output"
        return "intermediate" if any(neighbour < index for neighbour in writers) else "input"
