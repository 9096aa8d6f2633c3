# SPDX-License-Identifier: Apache-2.0
"""A compiling process, asked for one launch after another.

Its output is untrusted: it can only reject a candidate. Any failure, including a crash or a timeout, counts as
rejection of that launch.
"""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from verl_kernel.env.compilation.description import Unit
from verl_kernel.env.compilation.outcome import Outcome, Refusal
from verl_kernel.env.compilation.targets import COMPILE_S
from verl_kernel.env.ipc.channel import ProtocolError
from verl_kernel.env.ipc.messages import Compile, Native, Translate
from verl_kernel.env.judge.processes.runner import GrantExceeded, RunnerDied, RunnerProcess, oom_kills
from verl_kernel.env.sandbox.scratch import CANDIDATE_FILE
from verl_kernel.errors import InfraError


class Stopping:
    """The current process of another thread, which can be stopped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: RunnerProcess | None = None
        self.is_stopped = False
        """Whether results are no longer needed."""

    def begin(self, process: RunnerProcess) -> None:
        """Note the process that works from now on; kill it if `stop` was called."""
        with self._lock:
            self._process = process
            if self.is_stopped:  # `stop` came between the fork and this call
                _kill(process)

    def end(self) -> None:
        """Collect the process."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.end()

    def stop(self) -> None:
        """Kill the process and all later ones; their thread collects them."""
        with self._lock:
            self.is_stopped = True
            if self._process is not None:
                _kill(self._process)


def _kill(process: RunnerProcess) -> None:
    with suppress(OSError):  # it has ended
        signal.pidfd_send_signal(process.pidfd, signal.SIGKILL)


_START_S = 60.0
"""Own time until a compiling process is ready."""
_INNOCENT_SHARE = 0.5
"""Share of its memory grant: a process that used less is not why the machine ran out of memory."""
_REMARK = re.compile(rf'{re.escape(CANDIDATE_FILE)}"?:(\d+):\d+\)?: error: (.+)')
"""The error that a pass of the compiler prints; the exception says only that a pass failed."""
_PASS_FAILED = "PassManager::run failed"
_NO_REASON = "Failures have been detected"
"""Message of LLVM's pass manager for a pass that gives no reason."""
_PASS = re.compile(r"Pipeline failed while executing \[`(\w+)`")
"""Message of LLVM's pass manager that names the failed pass."""
Read = TypeVar("Read")


class CompilingProcess:
    """One evaluation's compiling process.

    Args:
        process: newly forked.
        granted_s: seconds of own time for all requests together.
        may_be_killed: whether a kill from outside counts as a crash of the compiler.
        target: name of the GPU for which it compiles launches.

    Raises:
        InfraError: it does not start.
    """

    def __init__(
        self, process: RunnerProcess, may_be_killed: bool = True, granted_s: float = COMPILE_S, target: str = ""
    ) -> None:
        self._process, self._granted_s, self._left_s, self._target = process, granted_s, granted_s, target
        self._oom_kills = oom_kills()
        self._may_be_killed = may_be_killed
        try:
            process.ask(None, _START_S)
        except (TimeoutError, GrantExceeded, RunnerDied, ProtocolError) as exc:
            raise InfraError(f"a compiling process did not start: {type(exc).__name__} {exc}") from None

    @property
    def used_s(self) -> float:
        """Seconds of own time that the requests took."""
        return self._granted_s - self._left_s

    def outcome(self, unit: Unit) -> tuple[Outcome, bool]:
        """Return a launch's outcome, and whether another process would give the same (raises what `asked` raises)."""
        begun, printed = time.perf_counter(), len(self._process.output)
        request = Compile(compile=unit.to_json(), target=self._target)
        answer, is_certain = self.asked(request, lambda reply: Outcome.from_json(reply["compiled"]), unit)
        if isinstance(answer, Refusal):
            return Outcome(answer, time.perf_counter() - begun), is_certain
        if isinstance(answer.result, Refusal):
            return Outcome(self._explained(answer.result, unit, printed), answer.seconds), is_certain
        return answer, is_certain

    def asked(
        self, request: Compile | Translate | Native, read: Callable[[Any], Read], unit: Unit
    ) -> tuple[Read | Refusal, bool]:
        """Send a request about a launch; return the answer, and whether another process would give the same.

        Args:
            request: the request.
            read: reads the answer, which may be a refusal.
            unit: the launch.

        Raises:
            InfraError: the process was killed from outside, or the machine is out of memory and this process is not
                the reason.
        """
        printed = len(self._process.output)
        try:
            answer = read(self._answer(request))
            return (self._explained(answer, unit, printed) if isinstance(answer, Refusal) else answer), True
        except TimeoutError:
            self._process.end()  # it would answer the next request with this one's outcome
            reason = Refusal("CompileTimeout", f"compiling takes more than {self._granted_s:g} s", 0)
        except GrantExceeded as exc:
            reason = Refusal("CompileMemory", f"while it was compiled, {exc}", 0)
        except RunnerDied as died:
            reason = self._died(died.code, unit, printed)
        except (ProtocolError, LookupError, TypeError, ValueError, AttributeError) as exc:
            reason = Refusal("CompilerCrash", f"the compiler's answer cannot be read ({type(exc).__name__})", 0)
        return reason, False

    def _answer(self, request: Compile | Translate | Native) -> Any:
        try:
            # Never quite nothing: a budget of 0 would end a process that has its answer ready.
            return self._process.ask(request, max(0.1, self._left_s))
        finally:
            self._left_s -= self._process.used_s

    def _explained(self, refusal: Refusal, unit: Unit, printed: int) -> Refusal:
        """Return the refusal with the error of a pass, and without this run's paths."""
        if refusal.message == _PASS_FAILED:
            refusal = self._remark(unit, printed) or refusal
        message = refusal.message.replace(f"{self._process.scratch}/", "")
        return Refusal(refusal.kind, message, refusal.function, refusal.offset)

    def _remark(self, unit: Unit, printed: int) -> Refusal | None:
        """Return the error that a pass has printed since, with its line; None if there is none."""
        output = self._since(printed)
        if (match := _REMARK.search(output)) is None:
            return None
        line, message = int(match[1]), match[2]
        if message.startswith(_NO_REASON) and (failed := _PASS.search(output)) is not None:
            message = f"the compiler's pass {failed[1]} failed"
        # The function that begins last above the line: a kernel's error may stand in a function that it calls.
        candidates = [number for number, function in enumerate(unit.functions) if function.line <= line]
        if not candidates:
            return Refusal("CompilationError", message, 0)
        number = max(candidates, key=lambda number: unit.functions[number].line)
        return Refusal("CompilationError", message, number, line - unit.functions[number].line)

    def _died(self, code: int, unit: Unit, printed: int) -> Refusal:
        """Return why a dead process has no answer (raises InfraError if the kernel is not the reason)."""
        process = self._process
        is_innocent = process.grown_mb < _INNOCENT_SHARE * process.options.memory_mb
        if code == -signal.SIGKILL and not process.was_killed and is_innocent:  # the process cannot have killed itself
            if oom_kills() > self._oom_kills:
                raise InfraError("the machine is out of memory and killed a compiling process; run fewer judges")
            if not self._may_be_killed:
                raise InfraError("a compiling process was killed from outside")
        if (remark := self._remark(unit, printed)) is not None:
            return remark
        how = f"signal {-code}" if code < 0 else f"status {code}"
        lines = [line.strip() for line in self._since(printed).splitlines() if line.strip()]
        words = f": {lines[0][:300]}" if lines else ""
        return Refusal("CompilerCrash", f"the compiler ended with {how}{words}".replace(process.scratch, ""), 0)

    def _since(self, printed: int) -> str:
        return self._process.output[printed:].decode(errors="replace")
