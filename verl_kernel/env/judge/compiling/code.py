# SPDX-License-Identifier: Apache-2.0
"""Native code of kernels: each is made once, by processes that execute none, and kept by the judge.

A process is given one launch, apart from the program that it stands in, and makes PTX of it; another one is given PTX
and makes native code of it. So whatever such a process writes depends on nothing but what the judge keeps it under, and
a kernel that took hold of one would harm itself only. What an executing process writes is never kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from verl_kernel.env.compilation.description import Place, Unit, isolated
from verl_kernel.env.compilation.outcome import Refusal
from verl_kernel.env.ipc.code_messages import LeftOut, Native, NativeRequest, Translate
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.judge.compiling.code_time import LATE, CodeTime
from verl_kernel.env.judge.compiling.process import CompilingProcess
from verl_kernel.env.judge.compiling.stopping import Stopping
from verl_kernel.env.judge.processes.runner import RunnerProcess
from verl_kernel.env.judge.processes.zygote import CompileZygote
from verl_kernel.env.lru import LRUCache
from verl_kernel.env.options import GymOptions
from verl_kernel.env.sandbox.scratch import Scratch

MOST_BYTES = 64 << 20
"""Of one kernel's PTX, and of its code."""
_KEPT, _KEPT_BYTES = 4096, 256 << 20
_MOST_WARPS, _MOST_SHARED = 64, 1 << 24
Asked = TypeVar("Asked")
Answer = tuple[Asked | Refusal, bool]
"""And whether it would be the same another time."""


@dataclass(frozen=True)
class Translation:
    """A launch's PTX, and what is said of it; validated on reading.

    Raises:
        ValueError: a field that no kernel has.
    """

    ptx: bytes
    warps: int
    shared: int
    signature: dict[str, Any]

    def __post_init__(self) -> None:
        if type(self.warps) is not int or not 0 < self.warps <= _MOST_WARPS:
            raise ValueError("a block has between one and 64 warps")
        if type(self.shared) is not int or not 0 <= self.shared <= _MOST_SHARED:
            raise ValueError("a block's shared memory must be a number of bytes")
        if type(self.signature) is not dict:
            raise ValueError("a kernel's signature must be an object")


@dataclass(frozen=True)
class LaunchCode:
    """What an executing process needs to run a launch."""

    native: bytes
    """`executor.code`; opaque here."""
    name: str
    """The same for the same code."""
    signature: dict[str, Any]
    starts: list[int]
    """Lines where the launch's functions begin in the source that it was made of."""


class CodeStore:
    """A judge's native code; for one thread at a time.

    Args:
        options: limits of its processes.
        zygote: forks them.
    """

    def __init__(self, options: GymOptions, zygote: CompileZygote) -> None:
        self._options, self._zygote = options, zygote
        self._translations: LRUCache[Translation | Refusal] = LRUCache(_KEPT, _KEPT_BYTES)
        self._natives: LRUCache[bytes | Refusal] = LRUCache(_KEPT, _KEPT_BYTES)
        self.forked = 0
        """Processes so far."""

    def code(
        self, unit: Unit, texts: Mapping[Place, str], left_out: LeftOut, stopping: Stopping, spent: CodeTime
    ) -> LaunchCode | Refusal:
        """Code of a launch, or why there is none.

        Args:
            unit: the launch.
            texts: of the functions of its program, by name and line.
            left_out: numbers of the instructions that do not store; none if None.
            stopping: ends the process that works at it.
            spent: of the candidate, which it adds to.

        Raises:
            LookupError: a function is not in the program.
            ValueError: instructions that do not store are no numbers.
            InfraError: a process failed, and not because of the kernel.
        """
        if left_out is not None and not (type(left_out) is list and all(type(number) is int for number in left_out)):
            raise ValueError("instructions have numbers")
        source, alone = isolated(unit, texts)
        translation = self._translation(source, alone, stopping, spent)
        if isinstance(translation, Refusal):
            return translation
        name = _name(_hash(translation.ptx), translation.warps, translation.shared, left_out and sorted(set(left_out)))
        native = self._native(name, translation, alone, left_out, stopping, spent)
        if isinstance(native, Refusal):
            return native
        return LaunchCode(native, name, translation.signature, [item.line for item in alone.functions])

    def _translation(self, source: str, unit: Unit, stopping: Stopping, spent: CodeTime) -> Translation | Refusal:
        name = _name(source, unit.to_json())
        known = self._translations.get(name)
        if known is not None:
            return known

        def ask(process: CompilingProcess, memory: SharedMemory) -> Answer[Translation]:
            request = Translate(translate=unit.to_json())
            return process.asked(request, lambda reply: _translation(reply, memory), unit)

        made, is_certain = self._asked(source, stopping, spent, ask)
        size = len(made.ptx) if isinstance(made, Translation) else 0
        return self._translations.put(name, made, size) if is_certain else made

    def _native(
        self, name: str, translation: Translation, unit: Unit, left_out: LeftOut, stopping: Stopping, spent: CodeTime
    ) -> bytes | Refusal:
        known = self._natives.get(name)
        if known is not None:
            return known

        def ask(process: CompilingProcess, memory: SharedMemory) -> Answer[bytes]:
            _write(memory, translation.ptx)
            size = len(translation.ptx)
            wanted = NativeRequest(ptx=size, warps=translation.warps, shared=translation.shared, left_out=left_out)
            return process.asked(Native(native=wanted), lambda reply: _code(reply, memory), unit)

        made, is_certain = self._asked("", stopping, spent, ask)
        size = len(made) if isinstance(made, bytes) else 0
        return self._natives.put(name, made, size) if is_certain else made

    def _asked(
        self, source: str, stopping: Stopping, spent: CodeTime,
        ask: Callable[[CompilingProcess, SharedMemory], Answer[Asked]],
    ) -> Answer[Asked]:  # fmt: skip
        """What a process of its own answers in the time that is left."""
        granted_s = spent.left_s
        if not granted_s:
            return spent.late(granted_s), False
        with spent.making(), self._forked(source, stopping) as (forked, memory):
            process = CompilingProcess(forked, may_be_killed=False, granted_s=granted_s)
            try:
                made, is_certain = ask(process, memory)
            finally:
                spent.charge(process.used_s)
        if isinstance(made, Refusal) and made.kind == LATE and not is_certain:
            return spent.late(granted_s), False
        return made, is_certain

    @contextmanager
    def _forked(self, source: str, stopping: Stopping) -> Iterator[tuple[RunnerProcess, SharedMemory]]:
        """A process for one request, and the memory that the judge shares with it."""
        self.forked += 1
        with ExitStack() as resources:
            scratch = resources.enter_context(closing(Scratch(source)))
            memory = resources.enter_context(closing(SharedMemory.sparse(MOST_BYTES)))
            process = self._zygote.fork(scratch.path, memory, self._options)
            resources.callback(stopping.end)
            stopping.begin(process)
            yield process, memory


def _translation(reply: Any, memory: SharedMemory) -> Translation | Refusal:
    if "refused" in reply:
        return Refusal.from_json(reply["refused"])
    return Translation(_read(memory, reply["ptx"]), reply["warps"], reply["shared"], reply["signature"])


def _code(reply: Any, memory: SharedMemory) -> bytes | Refusal:
    if "refused" in reply:
        return Refusal.from_json(reply["refused"])
    return _read(memory, reply["made"])


def _read(memory: SharedMemory, size: Any) -> bytes:
    if type(size) is not int or not 0 < size <= memory.size:
        raise ValueError("a kernel's code has a length")
    return bytes(memory.region(0, size).numpy().tobytes())


def _write(memory: SharedMemory, data: bytes) -> None:
    memory.region(0, len(data)).numpy()[:] = bytearray(data)


def _name(*parts: Any) -> str:
    return _hash(json.dumps(parts, sort_keys=True).encode())


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
