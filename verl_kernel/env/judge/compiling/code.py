# SPDX-License-Identifier: Apache-2.0
"""Native code of kernels: the judge has each made once and keeps it; the processes that make it execute no kernel.

One process gets a single launch, without the rest of its program, and makes PTX. Another process gets the PTX and makes
native code. So the output depends only on what the judge stores it under, and a kernel that gains control of such a
process harms only itself. The judge never keeps what an executing process writes.
"""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from verl_kernel.env.compilation.description import Place, Unit, function_texts, isolated
from verl_kernel.env.compilation.outcome import Refusal
from verl_kernel.env.compilation.targets import CODE_S, COMPILE_S
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

# The time to make one candidate's code is not the candidate's own time; it has a limit of its own.


LATE = "CompileTimeout"
_ADVICE = "code is shorter where a program has fewer elements for each of its warps, or unrolls less"


class CodeTime:
    """Time to make the code of one candidate, for all its runners together; it is an `own_time.Waits`.

    Args:
        granted_s: own time of the processes that make code; `WALL_FACTOR` times that on the wall clock.
    """

    def __init__(self, granted_s: float) -> None:
        self._granted_s, self._spent_s, self._steps = granted_s, 0.0, 0
        self._waited_ns, self._begun_ns = 0, 0

    def waited_ns(self) -> int:
        """Return how long code was made so far, on the wall clock."""
        begun = self._begun_ns  # read first: if making ends in between, the sum is briefly too large, never too small
        return self._waited_ns + (time.monotonic_ns() - begun if begun else 0)

    def close(self) -> None:
        """Do nothing: there are no resources to release."""

    @property
    def left_s(self) -> float:
        """Seconds of own time for the next process; 0 if none are left."""
        # By own time, or by the wall clock where that is much longer: a process that only waits must end, too.
        left_s = self._granted_s - max(self._spent_s, self.waited_ns() / 1e9 / WALL_FACTOR)
        return max(0.0, min(COMPILE_S, left_s))

    @contextmanager
    def making(self) -> Iterator[None]:
        """Count the time inside as making code, and charge this thread's processor time."""
        self._steps += 1
        self._begun_ns, processor_before = time.monotonic_ns(), time.thread_time()
        try:
            yield
        finally:
            # This thread's own work is charged as well: reading a long source takes time.
            self.charge(time.thread_time() - processor_before)
            self._waited_ns += time.monotonic_ns() - self._begun_ns
            self._begun_ns = 0

    def charge(self, seconds: float) -> None:
        """Charge the own time of a process."""
        self._spent_s += seconds

    def late(self, granted_s: float) -> Refusal:
        """Return the refusal of a launch whose code was not made in the given time."""
        if granted_s >= COMPILE_S:
            return Refusal(LATE, f"making its code takes more than {COMPILE_S:g} s: {_ADVICE}", 0)
        text = (
            f"making code for all launches of the program takes more than {self._granted_s:g} s, after {self._steps} "
            f"steps: launch fewer kernels and configurations; {_ADVICE}"
        )
        return Refusal(LATE, text, 0)


MOST_BYTES = 64 << 20
"""Most bytes of a kernel's PTX, and of its native code."""
_KEPT = 4096
"""Most launches whose code is kept."""
_KEPT_BYTES = 256 << 20
"""Most bytes of PTX, and of native code, that are kept."""
_MOST_WARPS = 64
"""Most warps of a block; a GPU takes 32 of 32 threads."""
_MOST_SHARED = 1 << 24
"""Bound of a block's shared memory in bytes; no GPU has as much."""
Asked = TypeVar("Asked")
Answer = tuple[Asked | Refusal, bool]
"""The answer, and whether another process would give the same one."""


@dataclass(frozen=True)
class Translation:
    """A launch's PTX and its facts, validated when they are read.

    Raises:
        ValueError: a field has a value that no kernel has.
    """

    ptx: bytes
    warps: int
    shared: int
    signature: dict[str, Any]

    def __post_init__(self) -> None:
        if type(self.warps) is not int or not 0 < self.warps <= _MOST_WARPS:
            raise ValueError("a block has between one and 64 warps")  # check: warps-are-possible
        if type(self.shared) is not int or not 0 <= self.shared <= _MOST_SHARED:
            raise ValueError("a block's shared memory must be a number of bytes")  # check: shared-memory-is-possible
        if type(self.signature) is not dict:
            raise ValueError("a kernel's signature must be an object")  # check: signature-is-an-object


@dataclass(frozen=True)
class LaunchCode:
    """What an executing process needs to run a launch."""

    native: bytes
    """In the format of `emulator.code`; not read here."""
    name: str
    """Equal for equal code."""
    signature: dict[str, Any]
    starts: list[int]
    """First lines of the launch's functions in the source that was compiled."""


class CodeCache:
    """Code that has been made so far; judges that share processes share it."""

    def __init__(self) -> None:
        self.translations: LRUCache[Translation | Refusal] = LRUCache(_KEPT, _KEPT_BYTES)
        self.natives: LRUCache[bytes | Refusal] = LRUCache(_KEPT, _KEPT_BYTES)


class CodeStore:
    """A judge's native code; one thread may use it at a time.

    Args:
        options: limits of its processes.
        zygote: forks them.
        cache: what is kept; one of its own if it is missing.
    """

    def __init__(self, options: GymOptions, zygote: CompileZygote, cache: CodeCache | None = None) -> None:
        self._options, self._zygote = options, zygote
        self._cache = CodeCache() if cache is None else cache
        self.forked = 0
        """Number of processes so far."""

    def code(
        self,
        unit: Unit,
        texts: Mapping[Place, str],
        left_out: StoresLeftOut,
        *,
        stopping: Stopping,
        code_time: CodeTime,
        namespace: str = "",
    ) -> LaunchCode | Refusal:
        """Return the code of a launch, or why there is none.

        Args:
            unit: the launch.
            texts: of the functions of its program, by name and line.
            left_out: numbers of the instructions that do not store; None to let all store.
            stopping: ends the process that makes the code.
            code_time: the candidate's time; what this takes is charged to it.
            namespace: whose candidate it is; code is kept for its namespace.

        Raises:
            LookupError: a function is not in the program.
            ValueError: `left_out` does not hold numbers.
            InfraError: a process failed, and the kernel is not the reason.
        """
        if left_out is not None and not (type(left_out) is list and all(type(number) is int for number in left_out)):
            raise ValueError("instructions have numbers")  # check: left-out-stores-are-numbers
        # Without the rest of the program: code must depend on nothing but what it is stored under.
        source, alone = isolated(unit, texts)
        translation = self._translation(source, alone, stopping, code_time, namespace)
        if isinstance(translation, Refusal):
            return translation
        name = _name(_hash(translation.ptx), translation.warps, translation.shared, left_out and sorted(set(left_out)))
        stored_name = _name(namespace, self._options.memory_mb, name)
        native = self._native(stored_name, translation, alone, left_out, stopping=stopping, code_time=code_time)
        if isinstance(native, Refusal):
            return native
        return LaunchCode(native, name, translation.signature, [item.line for item in alone.functions])

    def _translation(
        self, source: str, unit: Unit, stopping: Stopping, code_time: CodeTime, namespace: str
    ) -> Translation | Refusal:
        name = _name(namespace, self._options.memory_mb, source, unit.to_json())
        cached = self._cache.translations.get(name)
        if cached is not None:
            return cached

        def ask(process: CompilingProcess, memory: SharedMemory) -> Answer[Translation]:
            request = Translate(translate=unit.to_json())
            return process.asked(request, lambda reply: _translation(reply, memory), unit)

        translation, is_certain = self._answer_of_process(source, stopping, code_time, ask)
        # An uncertain answer, after a timeout say, is not kept: another candidate may have more time.
        size = len(translation.ptx) if isinstance(translation, Translation) else 0
        return self._cache.translations.put(name, translation, size) if is_certain else translation

    def _native(
        self,
        name: str,
        translation: Translation,
        unit: Unit,
        left_out: StoresLeftOut,
        *,
        stopping: Stopping,
        code_time: CodeTime,
    ) -> bytes | Refusal:
        cached = self._cache.natives.get(name)
        if cached is not None:
            return cached

        def ask(process: CompilingProcess, memory: SharedMemory) -> Answer[bytes]:
            _write(memory, translation.ptx)
            size = len(translation.ptx)
            native_request = NativeRequest(
                ptx=size, warps=translation.warps, shared=translation.shared, left_out=left_out
            )
            return process.asked(Native(native=native_request), lambda reply: _code(reply, memory), unit)

        native, is_certain = self._answer_of_process("", stopping, code_time, ask)
        size = len(native) if isinstance(native, bytes) else 0
        return self._cache.natives.put(name, native, size) if is_certain else native

    def _answer_of_process(
        self,
        source: str,
        stopping: Stopping,
        code_time: CodeTime,
        ask: Callable[[CompilingProcess, SharedMemory], Answer[Asked]],
    ) -> Answer[Asked]:
        """Ask a new process, within the time that is left."""
        granted_s = code_time.left_s
        if not granted_s:
            return code_time.late(granted_s), False
        with code_time.making(), self._forked(source, stopping) as (forked, memory):
            process = CompilingProcess(forked, may_be_killed=False, granted_s=granted_s)
            try:
                answer, is_certain = ask(process, memory)
            finally:
                code_time.charge(process.used_s)
        if isinstance(answer, Refusal) and answer.kind == LATE and not is_certain:
            return code_time.late(granted_s), False
        return answer, is_certain

    @contextmanager
    def _forked(self, source: str, stopping: Stopping) -> Iterator[tuple[RunnerProcess, SharedMemory]]:
        """Fork a process for one request; yield it and the memory that the judge shares with it."""
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
        raise ValueError("a kernel's code has a length")  # check: code-has-a-length
    return bytes(memory.region(0, size).numpy().tobytes())


def _write(memory: SharedMemory, data: bytes) -> None:
    memory.region(0, len(data)).numpy()[:] = bytearray(data)


def _name(*parts: Any) -> str:
    return _hash(json.dumps(parts, sort_keys=True).encode())


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class CandidateCode:
    """The code of one candidate, for all its processes."""

    store: CodeStore
    """The judge's code."""
    namespace: str = ""
    """Whose candidate it is."""
    code_time: CodeTime = field(default_factory=lambda: CodeTime(CODE_S))
    """Its time for making code."""
    units: dict[str, Unit] = field(default_factory=dict)
    """Launches whose code was made, by their digests."""


class CodeService:
    """A thread that serves one executing process, as the judge waits for its runner meanwhile.

    Args:
        code: the candidate's; this adds to its units.
        sock: the judge's end of a socket to the process.
        source: the candidate's file.
    """

    def __init__(self, code: CandidateCode, sock: socket.socket, source: str) -> None:
        self._code, self._channel, self._source = code, Channel(sock), source
        self._texts: dict[Place, str] | None = None
        self._stopping = Stopping()
        self.failure: InfraError | None = None
        """Why it could not make code, if that is the gym's failure."""
        self._thread = threading.Thread(target=self._serve, name="code", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the thread and what it compiles (idempotent)."""
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
        """Answer a request; one that cannot be read is refused."""
        try:
            if self._texts is None:
                self._texts = function_texts(self._source)
            return self._make(request, self._texts)
        except LookupError as exc:
            return Refusal("LookupError", f"the source has no such function: {exc}", 0)
        except (SyntaxError, TypeError, ValueError, AttributeError, RecursionError) as exc:
            return Refusal(type(exc).__name__, f"the launch cannot be read: {exc}"[:200], 0)
        except InfraError as exc:
            if not self._stopping.is_stopped:
                self.failure = exc
            return exc

    def _make(self, request: Any, texts: Mapping[Place, str]) -> LaunchCode | Refusal:
        unit = Unit.from_json(request["unit"])
        code = self._code
        launch_code = code.store.code(
            unit,
            texts,
            request["left_out"],
            stopping=self._stopping,
            code_time=code.code_time,
            namespace=code.namespace,
        )
        if isinstance(launch_code, LaunchCode):
            code.units[unit.digest()] = unit  # compiled references ask for them again, by the digests of a trace
        return launch_code

    def _send(self, answer: LaunchCode | Refusal | InfraError) -> None:
        channel = self._channel
        if isinstance(answer, InfraError):
            channel.send(Failed(failed=str(answer)))
        elif isinstance(answer, Refusal):
            channel.send(Refused(refused=asdict(answer)))
        else:
            size = len(answer.native)
            channel.send(Code(code=size, name=answer.name, signature=answer.signature, starts=answer.starts))
            channel.send_bytes(answer.native)
