# SPDX-License-Identifier: Apache-2.0
"""Compiles and executes the launches that a runner asks for, and keeps an account of them for the judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

from verl_kernel.env.compilation import refusals
from verl_kernel.env.compilation.description import Unit
from verl_kernel.env.compilation.outcome import Refusal
from verl_kernel.env.compilation.rebuilding import Rebuilt
from verl_kernel.env.compilation.texts import definitions
from verl_kernel.env.execution.arena import Arena
from verl_kernel.env.execution.work import work
from verl_kernel.env.executor.driver import encoded, flattened
from verl_kernel.env.executor.errors import Fault, NotKnown
from verl_kernel.env.executor.flow.origins import Kind
from verl_kernel.env.executor.kernel import Buffer, Kernel
from verl_kernel.env.executor.library.grid import RESIDENT
from verl_kernel.env.executor.races.watch import Watch
from verl_kernel.env.ipc.execution_messages import Launched, LaunchRequest, Reported, Stopped, Work

_DRAWN = 1 << 20
"""Most programs whose order is drawn one by one; of more they run backwards from a drawn one."""
_MOST = 1 << 27
"""Programs of a grid that no kernel needs, and that take minutes here."""
Part = TypeVar("Part")


class Stop(Exception):
    """A launch did not run to its end."""

    def __init__(self, kind: str, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.kind, self.line = kind, line


@dataclass(frozen=True)
class Ready:
    """A compiled launch."""

    kernel: Kernel
    signature: dict[str, Any]
    """Types of the parameters, by name, as Triton names them."""


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
        file: that holds its source.
        arena: where tensors lie.
    """

    def __init__(self, file: str, arena: Arena) -> None:
        self._file, self._arena = file, arena
        self._definitions = definitions(Path(file).read_bytes().decode("utf-8", "surrogatepass"))
        self._known: dict[str, Ready | Stop] = {}
        """By launch and, in an ablation, the kinds of stores that happen."""
        self._native: dict[tuple[str, int, int, str], Kernel] = {}
        """By code, which several launches may share."""
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

    def _ready(self, unit: Unit, kept: list[Kind] | None) -> Ready:
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

    def _compiled(self, unit: Unit, kept: list[Kind] | None) -> Ready:
        functions: list[Any] = []
        if unit.launch.options.get("num_ctas", 1) != 1:
            raise Stop("unknown", "the executor runs no clusters of blocks")
        try:
            rebuilt = Rebuilt(unit, self._definitions, self._file)
            functions = rebuilt.functions
            made = functions[0].warmup(*rebuilt.positional, grid=(1,), **rebuilt.named, **rebuilt.options)
        except Exception as exc:  # noqa: BLE001  whatever stops the compiler is its refusal
            refusal = refusals.refusal(exc, functions)
            raise Stop("refused", f"{refusal.kind}: {refusal.message}", _line(unit, refusal)) from None
        if made.metadata.global_scratch_size or made.metadata.profile_scratch_size:
            raise Stop("unknown", "the executor gives a kernel no memory beside its arguments")
        key = (made.asm["ptx"], made.metadata.num_warps, made.metadata.shared, str(kept))
        try:
            if key not in self._native:
                self._native[key] = Kernel(key[0], key[1], key[2], kept=kept)
        except NotKnown as exc:
            raise Stop("unknown", str(exc)) from None
        return Ready(self._native[key], made.src.signature)

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
            raise Stop(fault.kind, str(fault), self._own_line(fault)) from None
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

    def _own_line(self, fault: Fault) -> int | None:
        return fault.line[1] if fault.line and Path(fault.line[0]).name == Path(self._file).name else None


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


def _line(unit: Unit, refusal: Refusal) -> int | None:
    number = refusal.function
    if number not in range(len(unit.functions)):
        return None
    return unit.functions[number or 0].line + refusal.offset
