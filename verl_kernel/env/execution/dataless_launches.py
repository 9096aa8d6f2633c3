# SPDX-License-Identifier: Apache-2.0
"""Launches on tensors without data: some programs of each launch are executed, on memory of the true size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from verl_kernel.env.emulator.counts import LaunchCount
from verl_kernel.env.emulator.errors import Fault
from verl_kernel.env.emulator.kernel import Buffer
from verl_kernel.env.execution import launch_arguments
from verl_kernel.env.execution.block_sampling import Sampler, SamplesDisagree
from verl_kernel.env.execution.launch_arguments import Arena
from verl_kernel.env.execution.launch_summary import areas_of, tally, work
from verl_kernel.env.execution.launches import AskForCode, CompiledLaunch, Launches, Stop, grid_of, own_line, readable
from verl_kernel.env.execution.sparse_memory import SparseMemory, is_whole
from verl_kernel.env.ipc.execution_messages import ALWAYS_BEYOND, LaunchRequest, Shows, Tally, Work, furthest

_MOST_JUMPS = 1 << 24
"""Backward jumps that a program may take."""
_MOST_JUMPS_OF_WAITING = 1 << 18
"""The same for a program that may wait: what it waits for may be no part of the sample, and it would never end."""
_OVERFLOW_BYTES = 1 << 31
"""From this number of bytes on, offsets of 32 bits may overflow."""
_OVERFLOW_HINT = "; a tensor of this size has offsets that overflow 32 bits: compute them in tl.int64"


@dataclass(frozen=True)
class Placed:
    """The tensors of a launch; a request names each by the number of its area and the offset in it."""

    areas: tuple[tuple[int, int, str], ...]
    buffers: tuple[Buffer, ...]

    def address(self, position: Any, length: int) -> int:
        """Return the address at which a tensor begins (raises ValueError if it lies in no area)."""
        number, offset = map(int, position)
        if number < 0 or not 0 <= offset <= self.buffers[number].bytes:
            raise ValueError("a tensor lies in its area")  # check: sampled-tensor-lies-in-its-area
        return self.buffers[number].address + offset


class SampledLaunches(Launches):
    """The launches of one candidate, which are sampled if the judge requests it.

    Args:
        arena: the arena that holds the tensors.
        ask: requests code from the judge.
        sparse: memory for the tensors of sampled launches.
    """

    def __init__(self, arena: Arena, ask: AskForCode, sparse: SparseMemory) -> None:
        super().__init__(arena, ask)
        self._sparse, self._is_sampling = sparse, False
        self._draw = np.random.default_rng(0)
        self._tried_works: dict[object, Work] = {}

    def start(
        self, *, sampled: bool, new_size: bool, seed: int, watch: bool, shows: Shows, refuses: bool, backwards: bool
    ) -> None:
        """Begin a forward whose launches are sampled or not, at a new size or not (other arguments as of `begin`)."""
        if new_size:
            self.forget()
        if sampled:
            self._sparse.begin(seed)
            self._tried_works.clear()
        self._is_sampling = sampled
        self._draw = np.random.default_rng(seed)
        self.begin(seed, watch, shows, refuses, backwards)

    def _run(
        self, ready: CompiledLaunch, request: LaunchRequest, name: str, is_followed: bool
    ) -> tuple[Work | None, list[Stop]]:
        if not self._is_sampling:
            return super()._run(ready, request, name, is_followed)
        return self._sampled(ready, request, name), []

    def _sampled(self, ready: CompiledLaunch, request: LaunchRequest, name: str) -> Work | None:
        placed, grid = self._placed(request), readable(lambda: grid_of(request))
        words = readable(lambda: launch_arguments.words(ready.signature, request["arguments"], cast(Arena, placed)))
        if 0 in grid:
            return None
        key = (id(ready.kernel), grid, tuple(words), placed)
        if request["is_tried"] and key in self._tried_works:
            return self._tried_works[key]
        tally_of = partial(self._tally, request, ready)
        run = partial(self._programs, ready, grid, words, placed)
        try:
            count = Sampler(run, grid, self._draw, tally_of, furthest).count(request["is_tried"])
        except SamplesDisagree as exc:
            raise Stop("apart", str(exc)) from None  # check: samples-agree
        finally:
            self._sparse.restore(placed.areas)
            self._sparse.give_back()
        launch_tally, names = tally_of(count), _names(request)
        explanation = None if request["is_tried"] else self._explained(count, launch_tally, names, ready)
        stores = self._stores.bytes(name, count)
        starts = [buffer.address for buffer in placed.buffers]
        launch_work = work(name, count, launch_tally, starts, stores=stores, explanation=explanation)
        if request["is_tried"]:
            self._tried_works[key] = launch_work
        return launch_work

    def _programs(
        self,
        ready: CompiledLaunch,
        grid: tuple[int, int, int],
        words: list[Any],
        placed: Placed,
        numbers: Sequence[int],
    ) -> LaunchCount:
        """Run some programs; memory that they write, and that other programs would read, is restored."""
        kernel, buffers = ready.kernel, placed.buffers
        step_budget = (_MOST_JUMPS_OF_WAITING if kernel.module.may_wait else _MOST_JUMPS) * len(numbers)
        try:
            count = kernel.launch(grid, words, buffers, order=numbers, fuel=step_budget)
        except Fault as fault:
            is_wide = any(buffer.bytes >= _OVERFLOW_BYTES for buffer in buffers)
            hint = _OVERFLOW_HINT if fault.kind == "out_of_bounds" and is_wide else ""
            # If no value in memory decides the address, the same access fails with real data too: a verdict, not a
            # limit of this process.
            kind = ALWAYS_BEYOND if fault.kind == "out_of_bounds" and not fault.depends_on_data else fault.kind
            # check: sampled-program-has-no-fault
            raise Stop(kind, f"{fault}{hint}", own_line(ready, fault.line)) from None
        uses = zip(placed.areas, count.reads, count.writes, strict=False)
        self._sparse.restore([area for area, read, written in uses if read.total and written.total])
        return count

    def _placed(self, request: LaunchRequest) -> Placed:
        """Place the launch's tensors; a second attempt follows if memory had to be cleared for some."""
        areas = readable(lambda: tuple(_area(*area) for area in request["areas"]))
        for _ in range(2):  # clearing also unmaps tensors of this launch that were placed before it
            clearings = self._sparse.clearings
            placed = Placed(areas, tuple(Buffer(self._address(area), area[1]) for area in areas))
            if self._sparse.clearings == clearings:
                return placed
        # check: sampled-tensors-fit
        raise Stop("unknown", "a launch has more, or larger, tensors than this process can address")

    def _address(self, area: tuple[int, int, str]) -> int:
        offset, length, dtype = area
        try:
            return (
                self._sparse.tensor_address(area)
                if dtype
                else readable(lambda: self._sparse.arena_address(offset, length))
            )
        except MemoryError as exc:
            raise Stop("unknown", str(exc)) from None  # check: sampled-address-fits

    def _tally(self, request: LaunchRequest, ready: CompiledLaunch, count: LaunchCount) -> Tally:
        areas, names = request["areas"], _names(request)
        launch_tally = tally(count, [area[1] for area in areas], names, *ready.name_and_types)
        # Integers without data are made up; where they are indices, the bytes they lead to are guesses.
        launch_tally["guessed"] = [
            name for name, number in names.items() if is_whole(areas[number][2]) and count.reads[number].total
        ]
        return launch_tally


def _names(request: LaunchRequest) -> dict[str, int]:
    """Return by argument the number of its tensor's area."""
    return areas_of(request["arguments"], lambda position: cast(int, position[0]))


def _area(offset: Any, length: Any, dtype: Any) -> tuple[int, int, str]:
    if type(offset) is not int or type(length) is not int or type(dtype) is not str or min(offset, length) < 0:
        raise ValueError("an area has a place, a length and a type")  # check: area-has-numbers
    return offset, length, dtype
