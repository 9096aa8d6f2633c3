# SPDX-License-Identifier: Apache-2.0
"""Executes the launches that a runner requests, and records them for the judge."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from verl_kernel.env.compilation.description import Unit, place
from verl_kernel.env.compilation.outcome import PASSED_OVER, UNKNOWN
from verl_kernel.env.emulator import code
from verl_kernel.env.emulator.copy_stores import Follow
from verl_kernel.env.emulator.counts import LaunchCount
from verl_kernel.env.emulator.errors import Fault
from verl_kernel.env.emulator.flow.origins import Kind
from verl_kernel.env.emulator.kernel import Buffer, Kernel
from verl_kernel.env.emulator.library.grid import RESIDENT
from verl_kernel.env.execution import launch_arguments
from verl_kernel.env.execution.launch_arguments import Arena, ArenaCopy
from verl_kernel.env.execution.launch_profile import SourceLine, explained
from verl_kernel.env.execution.launch_summary import areas_of, tally, work
from verl_kernel.env.execution.memory_checks import MemoryChecks
from verl_kernel.env.execution.store_kinds import StoreClassifier
from verl_kernel.env.ipc.channel import MAX_FRAME
from verl_kernel.env.ipc.execution_messages import (
    Explained,
    Launched,
    LaunchRequest,
    Reported,
    Shows,
    Stopped,
    Tally,
    Work,
)
from verl_kernel.env.ipc.messages import CodeRequest, StoresLeftOut
from verl_kernel.env.sandbox.scratch import CANDIDATE_FILE

# The order in which the programs of a launch run.
#
# Two forwards share a drawn order, which the second one reverses: so each of any two programs comes first once.


_MOST_PERMUTED = 1 << 20
"""The largest number of programs whose order is a random permutation; a larger grid starts at a random program."""


def random_order(draw: np.random.Generator, programs: int, may_wait: bool) -> np.ndarray:
    """Return the numbers of the programs in a random order.

    Args:
        draw: the source of randomness.
        programs: how many programs there are.
        may_wait: whether programs may wait for others; if so, only programs that run at the same time are permuted.
    """
    numbers = np.arange(programs)
    if may_wait:
        # Programs that wait for one that never becomes resident would hang: no program leaves its wave.
        parts = np.split(numbers, range(RESIDENT, programs, RESIDENT))
        return np.concatenate([draw.permutation(part) for part in parts])
    if programs <= _MOST_PERMUTED:
        return draw.permutation(programs)
    return np.roll(numbers, int(draw.integers(programs)))


def reversed_order(order: np.ndarray, may_wait: bool) -> np.ndarray:
    """Return an order reversed (arguments as of `random_order`)."""
    if not may_wait:
        return order[::-1]
    return np.concatenate([part[::-1] for part in np.split(order, range(RESIDENT, len(order), RESIDENT))])


LARGEST_GRID = ((1 << 31) - 1, 65_535, 65_535)
"""Most programs along each axis (CUDA C++ Programming Guide, "Technical Specifications")."""
_MOST_PROGRAMS = 1 << 27
"""A larger grid is refused: no kernel needs so many programs, and they would take minutes here."""
_MOST_REPORTED = 64 << 20
"""Bytes of all reports of a forward; 6,000 launches of few arguments take some 4 MB."""
_WATCH_FRACTION = 4
"""The race detector may take one part in this many of the memory that a candidate is granted."""
Value = TypeVar("Value")
AskForCode = Callable[[CodeRequest], tuple[Mapping[str, Any], bytes]]
"""Requests a launch's code from the judge: returns `messages.Code` and the code, or the reason why there is none."""


class Stop(Exception):
    """A launch did not run to its end."""

    def __init__(self, kind: str, message: str, line: int | None = None, function: str = "") -> None:
        super().__init__(message)
        self.kind, self.line, self.function = kind, line, function


@dataclass(frozen=True)
class CompiledLaunch:
    """A launch whose kernel is compiled."""

    kernel: Kernel
    unit: Unit
    signature: dict[str, Any]
    """Types of the parameters, by name, as Triton names them."""
    starts: list[int]
    """The first line of each of the unit's functions in the compiled source."""

    @property
    def name_and_types(self) -> tuple[str, dict[str, Any]]:
        """Return the kernel's name and the types of its arguments."""
        return self.unit.functions[0].name, self.signature

    def own_line(self, line: int) -> int:
        """Convert a line of the compiled source to a line of the candidate's file."""
        number, offset = place(line, self.starts)
        return self.unit.functions[number].line + offset


class Launches:
    """The launches of one candidate.

    Args:
        arena: the arena that holds the tensors.
        ask: requests code from the judge.
    """

    def __init__(self, arena: Arena, ask: AskForCode) -> None:
        self._arena, self._ask = arena, ask
        self._outcomes: dict[str, CompiledLaunch | Stop] = {}
        """Compiled launches, or why there is none, by launch and, in an ablation, the stores that are left out.

        Refusals are kept too, so that the judge is not asked again.
        """
        self._kernels: dict[str, Kernel] = {}
        """Kernels by the name of their code, which several launches may share."""
        self._stores = StoreClassifier()
        self._explained_once: set[object] = set()
        """Launches that were explained."""
        self._repeated: set[tuple[str, int]] = set()
        """Kernels, by name and line, that were launched twice on the same tensors."""
        self._changed_again: list[int] = []
        self._works: list[Work] = []
        self._sizes: list[int] = []
        """Bytes of each of these as JSON, of which there are `_reported` in all."""
        self._reported = 0
        self._stopped: Stopped | None = None
        self._random, self._seed, self._backwards = np.random.default_rng(0), 0, False
        self._checks, self._findings = MemoryChecks(arena.bytes // _WATCH_FRACTION), list[Stopped]()
        self.base = arena.address(0, 0)
        """The address at which the arena begins."""

    def run(self, request: LaunchRequest) -> Launched:
        """Run one launch."""
        name, is_tried = "a kernel", request.get("is_tried")
        is_followed = not is_tried and self._stores.next(self._random)
        try:
            unit = readable(lambda: Unit.from_json(request["unit"]))
            name = readable(lambda: unit.functions[0].name)
            kept_kinds = readable(lambda: request["kept"])
            launch_work, stops = self._run(
                self._ready(unit, kept_kinds), request, unit.digest(), is_followed and kept_kinds is None
            )
            self._findings += [_stopped(name, stop) for stop in stops]
            if launch_work is not None and not is_tried and kept_kinds is None:
                self._record(launch_work)
        except Stop as stop:
            if is_tried and _is_passed_over(stop):  # the autotuner may try other configurations
                return Launched(failure=str(stop), work=None, base=self.base, changed_again=[])
            return self._note(name, stop)
        changed_again, self._changed_again = self._changed_again, []
        return Launched(failure=None, work=launch_work, base=self.base, changed_again=changed_again)

    def refuse(self, reason: str) -> Launched:
        """Record a request that no correct runner sends."""
        return self._note("a kernel", Stop("unreadable", reason))

    def begin(
        self, seed: int, watch: bool, shows: Shows = "all", refuses: bool = True, backwards: bool = False
    ) -> None:
        """Begin a forward, and forget what ran before.

        Args:
            seed: seed of the order of programs.
            watch: whether memory is checked: for races, unwritten reads and accesses beyond views.
            shows: what the forward shows of stores.
            refuses: whether a launch stops when a check finds something.
            backwards: whether the order is reversed.
        """
        self._seed, self._backwards = seed, backwards
        self._stores.begin(shows)
        self._random = np.random.default_rng(seed)
        self._works, self._sizes, self._reported, self._stopped, self._findings = [], [], 0, None, []
        self._checks.begin(watch, refuses)

    def forget(self) -> None:
        """Forget what earlier forwards showed of launches."""
        # A kernel may compute at one size and copy at another, by the same code and at the same place of a forward.
        self._stores = StoreClassifier()
        self._explained_once.clear()

    def report(self, first: int = 0) -> Reported:
        """Return what ran since the forward began, from a launch on, as far as it fits into one message."""
        # Half a frame leaves room for the rest of the message; one launch is always sent, so that reports end.
        end, room = first, MAX_FRAME // 2
        while end < len(self._works) and (room >= self._sizes[end] or end == first):
            room -= self._sizes[end]
            end += 1
        return Reported(
            works=self._works[first:end],
            left=len(self._works) - end,
            stopped=self._stopped,
            not_watched=self._checks.not_watched,
            found=self._findings,
        )

    def _record(self, launch_work: Work) -> None:
        """Keep what a launch did for the report, which the judge holds in its memory."""
        size = len(json.dumps(launch_work))
        # The judge keeps the report: without a bound a candidate could fill the judge's memory with launches.
        if self._reported + size > _MOST_REPORTED:
            # check: reports-are-bounded
            raise Stop("stopped", f"after {len(self._works)} launches of a forward, there is no memory for another")
        self._sizes.append(size)
        self._works.append(launch_work)
        self._reported += size

    def _note(self, name: str, stop: Stop) -> Launched:
        # The first one decides the verdict: a candidate may catch the error, but later launches cannot hide it.
        self._stopped = self._stopped or _stopped(name, stop)
        return Launched(failure=str(stop), work=None, base=self.base, changed_again=[])

    def _ready(self, unit: Unit, kept_kinds: Sequence[Kind] | None) -> CompiledLaunch:
        """Return a launch's kernel; if only some kinds of stores are kept, without the others."""
        whole = self._compiled_once(unit, None)
        if kept_kinds is None:
            return whole
        kinds = self._stores.kinds(unit.digest(), whole.kernel.program)
        return self._compiled_once(unit, [number for number, kind in kinds.items() if kind not in kept_kinds])

    def _compiled_once(self, unit: Unit, left_out: StoresLeftOut) -> CompiledLaunch:
        key = f"{unit.digest()} {left_out or None}"
        if key not in self._outcomes:
            try:
                self._outcomes[key] = self._compiled(unit, left_out)
            except Stop as stop:
                self._outcomes[key] = stop
        outcome = self._outcomes[key]
        if isinstance(outcome, Stop):
            raise outcome
        return outcome

    def _compiled(self, unit: Unit, left_out: StoresLeftOut) -> CompiledLaunch:
        reply, native = self._ask(CodeRequest(unit=unit.to_json(), left_out=left_out or None))
        if "refused" in reply:
            refusal = reply["refused"]
            if refusal["kind"] == UNKNOWN:
                raise Stop("unknown", refusal["message"])  # check: launch-is-known
            # check: launch-is-not-refused
            raise Stop("refused", f"{refusal['kind']}: {refusal['message']}", *_refused_source(unit, refusal))
        if "failed" in reply:  # the judge knows the reason, which is not the kernel
            raise Stop("failed", reply["failed"])  # check: launch-did-not-fail
        if reply["name"] not in self._kernels:
            self._kernels[reply["name"]] = Kernel.loaded(code.read(native))
        signature = {name: _with_tuples(kind) for name, kind in reply["signature"].items()}
        return CompiledLaunch(self._kernels[reply["name"]], unit, signature, reply["starts"])

    def _run(
        self, ready: CompiledLaunch, request: LaunchRequest, name: str, is_followed: bool
    ) -> tuple[Work | None, list[Stop]]:
        """Run a launch; returns what it did (None for an empty grid), and what the checks found."""
        # Launches that an autotuner tries are not timed: they run on a copy, so that no result reaches the runner.
        arena = self._copied(request) if request["is_tried"] else self._arena
        words = readable(lambda: launch_arguments.words(ready.signature, request["arguments"], arena))
        buffers = readable(lambda: [Buffer(arena.address(*area), area[1]) for area in request["areas"]])
        buffers = readable(lambda: self._checks.buffers(buffers, [] if request["is_tried"] else request["fresh"]))
        views = readable(lambda: launch_arguments.views(request["views"], arena, buffers))
        readable(lambda: arena.point(request["pointers"]))
        x, y, z = readable(lambda: grid_of(request))
        if not x * y * z:
            return None, []
        if x * y * z > _MOST_PROGRAMS:
            raise Stop("endless", f"a grid of {x * y * z} programs takes too long")  # check: grid-is-finite
        order = self._order(ready, x * y * z)
        follow = (
            Follow(launch_arguments.kinds(ready.signature, request["arguments"], arena, buffers), self._random)
            if is_followed
            else None
        )
        run = partial(ready.kernel.launch, (x, y, z), words, order=order, follow=follow)
        # A view's access beyond itself lies inside the buffer, so only the view can be named.
        ranges = {"out_of_bounds": buffers, "outside_view": views}
        location = partial(_location, ready, request, arena, ranges)
        try:
            if request["is_tried"]:  # no checks here: the configuration that is chosen is launched once more
                count, faults = run(buffers), list[Fault]()
                self._repeat(ready, partial(run, buffers), buffers)
            else:
                count, faults = self._checks.launch(run, buffers, views)
        except Fault as fault:
            raise _stop(ready, fault, location(fault)) from None  # check: launch-has-no-fault
        stops = [_stop(ready, fault, location(fault)) for fault in faults]
        if stops and self._checks.refuses:
            raise stops[0]  # check: watched-launch-has-no-fault
        if follow is not None:
            self._stores.end(name, follow)
        names = readable(lambda: _names(request))
        launch_tally = tally(count, [area[1] for area in request["areas"]], names, *ready.name_and_types)
        is_whole = not request["is_tried"] and request["kept"] is None
        starts = [buffer.address for buffer in buffers]
        explanation = self._explained(count, launch_tally, names, ready) if is_whole else None
        stores = self._stores.bytes(name, count)
        return work(name, count, launch_tally, starts, stores=stores, explanation=explanation), stops

    def _repeat(self, ready: CompiledLaunch, run: Callable[[], object], buffers: Sequence[Buffer]) -> None:
        """Launch a tried kernel once more on its copy, the first time, and note which tensors that changes again.

        On a GPU all tries of the first call change such a tensor: the autotuner needs `reset_to_zero` for it.
        """
        function = ready.unit.functions[0]
        if (function.name, function.line) in self._repeated:
            return
        self._repeated.add((function.name, function.line))
        contents = [ctypes.string_at(buffer.address, buffer.bytes) for buffer in buffers]
        run()
        pairs = enumerate(zip(buffers, contents, strict=True))
        self._changed_again = [
            number for number, (buffer, content) in pairs if ctypes.string_at(buffer.address, buffer.bytes) != content
        ]

    def _explained(
        self, count: LaunchCount, launch_tally: Tally, names: Mapping[str, int], ready: CompiledLaunch
    ) -> Explained | None:
        """Explain a launch; None if an earlier one of the same code had the same grid and sizes."""
        # A forward may repeat a launch thousands of times, and its explanation is long.
        key = (id(ready.kernel), count.shape, tuple(area[0] for area in launch_tally["areas"].values()))
        if key in self._explained_once:
            return None
        self._explained_once.add(key)
        return explained(count, names, partial(own_line, ready))

    def _copied(self, request: LaunchRequest) -> Arena:
        try:
            return readable(lambda: ArenaCopy(self._arena, request["areas"]))
        except (OSError, MemoryError):
            # check: tuned-tensors-fit-twice
            raise Stop("stopped", "an autotuner's tensors do not fit twice into the memory that is granted") from None

    def _order(self, ready: CompiledLaunch, programs: int) -> Any:
        """Draw an order of programs; a GPU may run them in any order."""
        draw = np.random.default_rng((self._seed, self._stores.number + 1))
        order = random_order(draw, programs, ready.kernel.module.may_wait)
        return reversed_order(order, ready.kernel.module.may_wait) if self._backwards else order


def readable(read: Callable[[], Value]) -> Value:
    """Read a part of a request; a part that cannot be read was not written by our runner."""
    try:
        return read()
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as exc:
        # check: launch-is-readable
        raise Stop("unreadable", f"a launch cannot be read: {type(exc).__name__}: {exc}") from None


def _names(request: LaunchRequest) -> dict[str, int]:
    """Return by argument the number of its tensor's area."""

    def area_of(offset: int) -> int | None:
        inside = (number for number, area in enumerate(request["areas"]) if area[0] <= offset <= area[0] + area[1])
        return next(inside, None)

    return areas_of(request["arguments"], area_of)


def grid_of(request: LaunchRequest) -> tuple[int, int, int]:
    """Return the grid of a launch (raises Stop, or ValueError)."""
    grid = request["grid"]
    if len(grid) != 3 or not all(type(size) is int and size >= 0 for size in grid):
        raise ValueError("a grid has three sizes")  # check: grid-has-three-sizes
    if any(size > limit for size, limit in zip(grid, LARGEST_GRID, strict=True)):
        # check: grid-is-one-of-a-gpu
        raise Stop("stopped", f"a grid of {grid} is larger than a GPU takes, which is {[*LARGEST_GRID]}")
    x, y, z = grid
    return x, y, z


def _with_tuples(kind: Any) -> Any:
    """Return a parameter's type, with tuples in place of JSON's lists."""
    return tuple(map(_with_tuples, kind)) if isinstance(kind, list) else kind


def _location(
    ready: CompiledLaunch,
    request: LaunchRequest,
    arena: Arena,
    ranges: Mapping[str, Sequence[Buffer]],
    fault: Fault,
) -> str:
    """Describe the place of an access beyond its tensor; `ranges` has the tensors by the kind of the fault."""
    if fault.kind not in ranges:
        return ""
    element = launch_arguments.nearest(ready.signature, request["arguments"], arena, ranges[fault.kind], fault.address)
    return f"{element and ', at '}{element}: check the mask and the grid"


def _stop(ready: CompiledLaunch, fault: Fault, detail: str = "") -> Stop:
    return Stop(fault.kind, f"{fault}{detail}", own_line(ready, fault.line))


def _is_passed_over(stop: Stop) -> bool:
    """Whether an autotuner skips a configuration for this reason, or the failure is not the kernel's fault."""
    return stop.kind in ("unknown", "stopped", "failed", "not_watched") or str(stop).startswith(PASSED_OVER)


def _stopped(name: str, stop: Stop) -> Stopped:
    return Stopped(kind=stop.kind, kernel=stop.function or name, message=str(stop), line=stop.line)


def own_line(ready: CompiledLaunch, line: SourceLine) -> int | None:
    """Return a line of compiled code as one of the candidate's file; None if it lies in another file."""
    return ready.own_line(line[1]) if line is not None and Path(line[0]).name == CANDIDATE_FILE else None


def _refused_source(unit: Unit, refusal: Mapping[str, Any]) -> tuple[int | None, str]:
    """Return line and name of the function that the compiler refuses; the kernel may call that function."""
    number = refusal["function"]
    if number not in range(len(unit.functions)):
        return None, ""
    function = unit.functions[number or 0]
    return function.line + int(refusal["offset"]), function.name
