# SPDX-License-Identifier: Apache-2.0
"""Executes the launches that a runner asks for, and keeps an account of them for the judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

from verl_kernel.env.compilation.description import Unit
from verl_kernel.env.compilation.isolated import place
from verl_kernel.env.compilation.outcome import UNKNOWN
from verl_kernel.env.execution.arena import Arena
from verl_kernel.env.execution.work import work
from verl_kernel.env.executor import code
from verl_kernel.env.executor.arguments import encoded, flattened
from verl_kernel.env.executor.errors import Fault
from verl_kernel.env.executor.kernel import Buffer, Kernel
from verl_kernel.env.executor.library.grid import RESIDENT
from verl_kernel.env.executor.races.watch import Watch
from verl_kernel.env.ipc.code_messages import CodeRequest, Kept
from verl_kernel.env.ipc.execution_messages import Launched, LaunchRequest, Reported, Stopped, Work
from verl_kernel.env.sandbox.scratch import CANDIDATE_FILE

_DRAWN = 1 << 20
"""Most programs whose order is drawn one by one; of more they run backwards from a drawn one."""
_MOST = 1 << 27
"""Programs of a grid that no kernel needs, and that take minutes here."""
Part = TypeVar("Part")
AskForCode = Callable[[CodeRequest], tuple[Mapping[str, Any], bytes]]
"""Has the judge hand over a launch's code: `code_messages.Code` and it, or why there is none and nothing."""


class Stop(Exception):
    """A launch did not run to its end."""

    def __init__(self, kind: str, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.kind, self.line = kind, line


@dataclass(frozen=True)
class Ready:
    """A compiled launch."""

    kernel: Kernel
    unit: Unit
    signature: dict[str, Any]
    """Types of the parameters, by name, as Triton names them."""
    starts: list[int]
    """Lines where the unit's functions begin in what was compiled."""

    def own_line(self, line: int) -> int:
        """A line of the candidate's file, by that of what was compiled."""
        number, offset = place(line, self.starts)
        return self.unit.functions[number].line + offset


class _Pointer:
    """The address of a tensor's first element."""

    def __init__(self, address: int) -> None:
        self._address = address

    def data_ptr(self) -> int:
        """It."""
        return self._address


class Launches:
    """The launches of one candidate.

    Args:
        arena: where tensors lie.
        ask: for code.
    """

    def __init__(self, arena: Arena, ask: AskForCode) -> None:
        self._arena, self._ask = arena, ask
        self._known: dict[str, Ready | Stop] = {}
        """By launch and, in an ablation, the kinds of stores that happen."""
        self._native: dict[str, Kernel] = {}
        """By name of its code, which several launches may share."""
        self._works: list[Work] = []
        self._stopped: Stopped | None = None
        self._random = np.random.default_rng(0)
        self._watches, self._not_watched = False, list[str]()

    def run(self, request: LaunchRequest) -> Launched:
        """Run one launch."""
        name = "a kernel"
        try:
            unit = _read(lambda: Unit.from_json(request["unit"]))
            name = _read(lambda: unit.functions[0].name)
            done = self._run(self._ready(unit, _read(lambda: request["kept"])), request)
        except Stop as stop:
            if request.get("is_tried"):  # the autotuner may have others
                return Launched(failure=str(stop), work=None)
            return self._note(name, stop)
        if done is not None and not request["is_tried"] and request["kept"] is None:
            self._works.append(done)
        return Launched(failure=None, work=done)

    def refuse(self, reason: str) -> Launched:
        """Note that the runner sent what no runner sends."""
        return self._note("a kernel", Stop("unreadable", reason))

    def report(self, seed: int, watch: bool) -> Reported:
        """What ran since the last report; from now on `seed` draws the order of programs, and races are looked for."""
        self._random = np.random.default_rng(seed)
        reported = Reported(works=self._works, stopped=self._stopped, not_watched=self._not_watched)
        self._works, self._stopped, self._not_watched, self._watches = [], None, [], watch
        return reported

    def _note(self, name: str, stop: Stop) -> Launched:
        message = str(stop)
        self._stopped = self._stopped or Stopped(kind=stop.kind, kernel=name, message=message, line=stop.line)
        return Launched(failure=message, work=None)

    def _ready(self, unit: Unit, kept: Kept) -> Ready:
        key = f"{unit.digest()} {kept}"
        if key not in self._known:
            try:
                self._known[key] = self._compiled(unit, kept)
            except Stop as stop:
                self._known[key] = stop
        found = self._known[key]
        if isinstance(found, Stop):
            raise found
        return found

    def _compiled(self, unit: Unit, kept: Kept) -> Ready:
        told, native = self._ask(CodeRequest(unit=unit.to_json(), kept=kept))
        if "refused" in told:
            refused = told["refused"]
            if refused["kind"] == UNKNOWN:
                raise Stop("unknown", refused["message"])
            raise Stop("refused", f"{refused['kind']}: {refused['message']}", _line(unit, refused))
        if "failed" in told:  # the judge knows why, and it is not the kernel
            raise Stop("failed", told["failed"])
        if told["name"] not in self._native:
            self._native[told["name"]] = Kernel.loaded(code.read(native))
        signature = {name: _sort(kind) for name, kind in told["signature"].items()}
        return Ready(self._native[told["name"]], unit, signature, told["starts"])

    def _run(self, ready: Ready, request: LaunchRequest) -> Work | None:
        """Run it; what it did, or None of an empty grid."""
        words = _read(lambda: self._words(ready, request["arguments"]))
        buffers = _read(lambda: [Buffer(self._arena.address(*area), area[1]) for area in request["areas"]])
        x, y, z = _read(lambda: _sizes(request["grid"]))
        if not x * y * z:
            return None
        if x * y * z > _MOST:
            raise Stop("endless", f"a grid of {x * y * z} programs takes too long")
        # Triton loads a scalar in each warp and stores it in one, which is a race between warps without effect.
        watch, order = Watch(between_warps=False) if self._watches else None, self._order(ready, x * y * z)
        try:
            count = ready.kernel.launch((x, y, z), words, buffers, order=order, watch=watch)
        except Fault as fault:
            raise Stop(fault.kind, str(fault), _own_line(ready, fault)) from None
        if watch is not None:
            self._not_watched += watch.not_watched
        return work(count, len(buffers))

    def _words(self, ready: Ready, arguments: Mapping[str, Any]) -> list[Any]:
        """Values of the kernel's parameters."""
        values = {name: self._value(told) for name, told in arguments.items()}
        flat = [
            encoded(kind, item)
            for name, sort in ready.signature.items()
            for kind, item in flattened(sort, values.get(name))
        ]
        return [item.data_ptr() if isinstance(item, _Pointer) else item or 0 for item in flat]

    def _order(self, ready: Ready, programs: int) -> Any:
        """Any order is a GPU's. Programs that may wait for others keep theirs where not all of them are resident."""
        if ready.kernel.module.may_wait and programs > RESIDENT:
            return None
        if programs <= _DRAWN:
            return self._random.permutation(programs)
        numbers = np.arange(programs)
        return np.roll(numbers[::-1], int(self._random.integers(programs)))

    def _value(self, told: Any) -> Any:
        """An argument as Triton's launcher would be given it."""
        if isinstance(told, list):
            return tuple(map(self._value, told))
        if not isinstance(told, Mapping):
            return told
        ((kind, content),) = told.items()
        if kind == "float":
            return float(content)
        if kind == "tensor":
            return _Pointer(self._arena.address(content, 0))
        if kind == "descriptor":
            return SimpleNamespace(**{**content, "base": self._value(content["base"])})
        raise ValueError(f"an argument of the unknown kind {kind!r}")


def _read(read: Callable[[], Part]) -> Part:
    """A part of a request; what cannot be read was not written by our code."""
    try:
        return read()
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as exc:
        raise Stop("unreadable", f"a launch cannot be read: {type(exc).__name__}: {exc}") from None


def _sizes(grid: Any) -> tuple[int, int, int]:
    if len(grid) != 3 or not all(type(size) is int and 0 <= size < 1 << 31 for size in grid):
        raise ValueError("a grid has three sizes")
    x, y, z = grid
    return x, y, z


def _sort(kind: Any) -> Any:
    """A parameter's type, with tuples where JSON has lists."""
    return tuple(map(_sort, kind)) if isinstance(kind, list) else kind


def _own_line(ready: Ready, fault: Fault) -> int | None:
    """The line of a fault, if it lies in the candidate's file."""
    is_own = fault.line is not None and Path(fault.line[0]).name == CANDIDATE_FILE
    return ready.own_line(fault.line[1]) if is_own and fault.line else None


def _line(unit: Unit, refused: Mapping[str, Any]) -> int | None:
    number = refused["function"]
    if number not in range(len(unit.functions)):
        return None
    return unit.functions[number or 0].line + int(refused["offset"])
