# SPDX-License-Identifier: Apache-2.0
"""Native code of kernels: each is made once, by processes that execute none, and kept by the judge.

A process is given one launch, apart from the program that it stands in, and makes PTX of it; another one is given PTX
and makes native code of it. So whatever such a process writes depends on nothing but what the judge keeps it under, and
a kernel that took hold of one would harm itself only. What an executing process writes is never kept.
"""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from verl_kernel.env.compilation.description import Place, Unit, function_texts, isolated
from verl_kernel.env.compilation.outcome import Refusal
from verl_kernel.env.compilation.targets import COMPILE_S
from verl_kernel.env.ipc.channel import Channel, ChannelClosed, ProtocolError
from verl_kernel.env.ipc.messages import Code, Failed, Native, NativeRequest, Refused, StoresLeftOut, Translate
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.judge.compiling.process import CompilingProcess, Stopping
from verl_kernel.env.judge.processes.own_time import WALL_FACTOR
from verl_kernel.env.judge.processes.runner import RunnerProcess
from verl_kernel.env.judge.processes.zygote import CompileZygote
from verl_kernel.env.lru import LRUCache
from verl_kernel.env.options import GymOptions
from verl_kernel.env.sandbox.scratch import Scratch
from verl_kernel.errors import InfraError

# The time to make one candidate's code, which is not the candidate's own and has a bound of its own.


LATE = "CompileTimeout"
_ADVICE = "code is shorter where a program has fewer elements for each of its warps, or unrolls less"


class CodeTime:
    """The time of one candidate, all of its runners together; what waits for code sees it as `own_time.Waits`.

    Args:
        granted_s: own time of the processes that make code; `backstop_s` of it on the wall clock.
    """

    def __init__(self, granted_s: float) -> None:
        self._granted_s, self._spent_s, self._steps = granted_s, 0.0, 0
        self._waited_ns, self._begun_ns = 0, 0

    def waited_ns(self) -> int:
        """How long code was made so far, on the wall clock."""
        begun = self._begun_ns  # first: if it ends in between, the sum is too large for a moment, never too small
        return self._waited_ns + (time.monotonic_ns() - begun if begun else 0)

    def close(self) -> None:
        """Do nothing: there is nothing to give back."""

    @property
    def left_s(self) -> float:
        """Own time that the next process has; 0 if there is none."""
        left_s = self._granted_s - max(self._spent_s, self.waited_ns() / 1e9 / WALL_FACTOR)
        return max(0.0, min(COMPILE_S, left_s))

    @contextmanager
    def making(self) -> Iterator[None]:
        """Code is made inside; what this thread computes for it is charged."""
        self._steps += 1
        self._begun_ns, before = time.monotonic_ns(), time.thread_time()
        try:
            yield
        finally:
            self.charge(time.thread_time() - before)
            self._waited_ns += time.monotonic_ns() - self._begun_ns
            self._begun_ns = 0

    def charge(self, seconds: float) -> None:
        """A process took so much of its own time."""
        self._spent_s += seconds

    def late(self, granted_s: float) -> Refusal:
        """Why there is no code of a launch for which this much time was left."""
        if granted_s >= COMPILE_S:
            return Refusal(LATE, f"making its code takes more than {COMPILE_S:g} s: {_ADVICE}", 0)
        text = (
            f"making code for all launches of the program takes more than {self._granted_s:g} s, after {self._steps} "
            f"steps: launch fewer kernels and configurations; {_ADVICE}"
        )
        return Refusal(LATE, text, 0)


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
        self, unit: Unit, texts: Mapping[Place, str], left_out: StoresLeftOut, stopping: Stopping, spent: CodeTime
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
        self,
        name: str,
        translation: Translation,
        unit: Unit,
        left_out: StoresLeftOut,
        stopping: Stopping,
        spent: CodeTime,
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


# Answers an executing process that asks for the code of a launch, while the judge waits for something else.


class CodeService:
    """A thread that serves one executing process.

    Args:
        store: the judge's code.
        sock: the judge's end of a socket to the process.
        source: the candidate's file.
        spent: the candidate's.
    """

    def __init__(self, store: CodeStore, sock: socket.socket, source: str, spent: CodeTime) -> None:
        self._store, self._channel, self._source, self._spent = store, Channel(sock), source, spent
        self._texts: dict[Place, str] | None = None
        self._stopping = Stopping()
        self.failure: InfraError | None = None
        """Why it could not serve, though no candidate is to blame."""
        self._thread = threading.Thread(target=self._serve, name="code", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End it, and what is being compiled for it (idempotent)."""
        self._stopping.stop()
        with suppress(OSError):
            self._channel.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._channel.close()

    def _serve(self) -> None:
        with suppress(ChannelClosed, ProtocolError):
            while not self._stopping.is_stopped:
                self._send(self._answer(self._channel.recv()))

    def _answer(self, request: Any) -> LaunchCode | Refusal | InfraError:
        """What becomes of a request; one that cannot be read was not written by our code."""
        try:
            if self._texts is None:
                self._texts = function_texts(self._source)
            return self._made(request, self._texts)
        except LookupError as exc:
            return Refusal("LookupError", f"the source has no such function: {exc}", 0)
        except (SyntaxError, TypeError, ValueError, AttributeError, RecursionError) as exc:
            return Refusal(type(exc).__name__, f"the launch cannot be read: {exc}"[:200], 0)
        except InfraError as exc:
            if not self._stopping.is_stopped:
                self.failure = exc
            return exc

    def _made(self, request: Any, texts: Mapping[Place, str]) -> LaunchCode | Refusal:
        unit = Unit.from_json(request["unit"])
        return self._store.code(unit, texts, request["left_out"], self._stopping, self._spent)

    def _send(self, found: LaunchCode | Refusal | InfraError) -> None:
        channel = self._channel
        if isinstance(found, InfraError):
            channel.send(Failed(failed=str(found)))
        elif isinstance(found, Refusal):
            channel.send(Refused(refused=asdict(found)))
        else:
            size = len(found.native)
            channel.send(Code(code=size, name=found.name, signature=found.signature, starts=found.starts))
            channel.send_bytes(found.native)
