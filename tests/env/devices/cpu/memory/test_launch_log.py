# SPDX-License-Identifier: Apache-2.0
"""Races of random accesses, looked through at once or in pieces, against the definition applied pair by pair."""

from itertools import combinations
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.env.devices.cpu.memory import launch_log
from verl_kernel.env.devices.cpu.memory.access import Access, Kind
from verl_kernel.env.devices.cpu.memory.areas import Areas
from verl_kernel.env.devices.cpu.memory.findings import FINDINGS
from verl_kernel.env.devices.cpu.memory.races.order import Order

CELLS, PROGRAMS = 6, 4


class Step(NamedTuple):
    """One access of a program, to cells of four bytes."""

    kind: Kind
    cells: tuple[int, ...]
    value: int


def steps(*kinds: Kind) -> st.SearchStrategy[list[Step]]:
    cells = st.lists(st.integers(0, CELLS - 1), min_size=1, max_size=3, unique=True).map(tuple)
    return st.lists(st.builds(Step, st.sampled_from(kinds), cells, st.integers(0, 2)), max_size=3)


WRITES = (Kind.STORE, Kind.STORE, Kind.ATOMIC)
LAUNCHES = st.lists(
    st.tuples(steps(Kind.LOAD), steps(*WRITES)).map(lambda parts: [*parts[0], *parts[1]]),
    min_size=PROGRAMS,
    max_size=PROGRAMS,
)
"""Programs that load before they write, so that none loads what it has stored itself."""


def racy_cells(programs: list[list[Step]]) -> set[int]:
    """Cells of which two programs do what must not meet."""
    memory, found = [0] * CELLS, set()
    did: list[dict[int, set[str]]] = [{} for _ in programs]
    last: list[dict[int, int]] = [{} for _ in programs]
    for number, program in enumerate(programs):
        for step in program:
            for cell in step.cells:
                words = did[number].setdefault(cell, set())
                words.add(step.kind.value)
                if step.kind is Kind.STORE:
                    words |= {"changed"} if memory[cell] != step.value else set()
                    memory[cell] = last[number][cell] = step.value
    for (one, first), (two, second) in combinations(list(enumerate(did)), 2):
        for cell in first.keys() & second.keys():
            pairs = ((first[cell], second[cell]), (second[cell], first[cell]))
            if any(("load" in a and b & {"changed", "atomic"}) or ("store" in a and "atomic" in b) for a, b in pairs):
                found.add(cell)
            if cell in last[one] and cell in last[two] and last[one][cell] != last[two][cell]:
                found.add(cell)
    return found


def looked_through(programs: list[list[Step]], most_lanes: int) -> set[int]:
    """Cells of the races that the log finds."""
    tensor = torch.zeros(CELLS, dtype=torch.int32)
    start = tensor.data_ptr()
    memory = np.zeros(CELLS, np.int32)
    areas = Areas({"x": tensor}, [(start, start + 4 * CELLS)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch_log, "_MOST_LANES", most_lanes)
        log = launch_log.LaunchLog("k", "k.py", (len(programs), 1, 1), areas)
        for program in programs:
            log.program += 1
            for step in program:
                log.add(access_of(step, log.program, start, memory))
        log.end()
    return {item["offset"] for item in FINDINGS.take()}


def access_of(step: Step, program: int, start: int, memory: np.ndarray) -> Access:
    cells = np.array(step.cells)
    pointers, mask = (start + 4 * cells).astype(np.uint64), np.ones(cells.shape, bool)
    if step.kind is not Kind.STORE:
        return Access(step.kind, program, pointers, mask, 4, None)
    value, before = np.full(cells.shape, step.value, np.int32), memory[cells]
    memory[cells] = step.value
    return Access(step.kind, program, pointers, mask, 4, None, value, before)


@pytest.mark.parametrize("most_lanes", [0, 4, 1 << 22])
@given(programs=LAUNCHES)
def test_races_are_those_of_the_definition(most_lanes, programs):
    racy, found = racy_cells(programs), looked_through(programs, most_lanes)
    assert found <= racy and bool(found) == bool(racy)


def test_what_atomics_order_is_known_and_nothing_else():
    order = Order()
    order.tell(1, 5, np.array([64], np.uint64))
    order.learn(2, 9, np.array([64], np.uint64))
    order.learn(3, 12, np.array([128], np.uint64))
    order.tell(2, 10, np.array([128], np.uint64))
    order.learn(4, 14, np.array([128], np.uint64))
    assert order.known(2, 8) is None and order.known(3, 12) is None
    assert order.known(2, 9)[1] == 5
    assert order.known(4, 14).tolist()[:3] == [0, 5, 10]


def test_an_atomic_on_many_addresses_is_found_by_any_of_them():
    order = Order()
    order.tell(1, 3, np.arange(0, 4000, 4, dtype=np.uint64))
    order.learn(2, 4, np.array([396], np.uint64))
    order.learn(3, 5, np.array([398], np.uint64))
    assert order.known(2, 4)[1] == 3 and order.known(3, 5) is None


def test_too_many_locks_count_as_an_order():
    order = Order()
    for program in range(1, 6000):
        order.tell(program, program, np.array([8 * program], np.uint64))
    assert order.is_lost
