# SPDX-License-Identifier: Apache-2.0
"""The judge's side of the exchange with a runner: each way in which it fails is a verdict on the candidate."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from typing import Any, TypeVar

from verl_kernel.env.ipc.channel import ProtocolError
from verl_kernel.env.ipc.messages import Claims, Request
from verl_kernel.env.judge.findings import Stages
from verl_kernel.env.judge.processes.runner import GrantExceeded, RunnerDied, RunnerProcess, oom_kills
from verl_kernel.env.options import GymOptions
from verl_kernel.env.result import EvalError, EvalStatus
from verl_kernel.env.sandbox.scratch import CANDIDATE_FILE
from verl_kernel.env.tamper.hack_flags import HackFlag, read_notes
from verl_kernel.errors import InfraError

_MESSAGE_CHARS = 2000
"""Most characters of a text of the candidate's in a verdict."""
_INNOCENT_SHARE = 0.5
"""Share of its memory grant: a runner that used less is not why the machine ran out of memory."""
ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")
_RUNNER_STATUSES = (
    *(EvalStatus.LOAD_ERROR, EvalStatus.COMPILE_ERROR, EvalStatus.RUNTIME_ERROR, EvalStatus.OOM, EvalStatus.CRASH),
)
Parsed = TypeVar("Parsed")


class Verdict(Exception):
    """Ends the evaluation with this verdict."""

    def __init__(self, status: EvalStatus, error: EvalError, flags: tuple[HackFlag, ...] = ()) -> None:
        super().__init__(status)
        self.status, self.error, self.flags = status, error, flags


class RunnerClient:
    """Sends requests to one runner, and turns wrong or missing answers into verdicts.

    Args:
        runner: the runner.
        scratch: directory of the candidate's file; it is removed from every text.
        options: the limits; verdicts name them.
        stages: know the current stage of the evaluation.
    """

    def __init__(self, runner: RunnerProcess, scratch: str, options: GymOptions, stages: Stages) -> None:
        self.begun = False
        """Whether code of the candidate may have run."""
        self.reply: Claims = {}
        """The latest answer."""
        self.runner, self.file = runner, f"{scratch}/{CANDIDATE_FILE}"
        # Counted now: only kills during this evaluation explain the runner's end.
        self._options, self._stages, self._oom_kills = options, stages, oom_kills()

    @property
    def stage(self) -> str:
        """The current stage of the evaluation."""
        return self._stages.current

    def ask(self, request: Request | None, budget_s: float) -> Claims:
        """Send a request and wait for the answer (raises Verdict).

        Args:
            request: None to wait for the runner's first message, which comes without a request.
            budget_s: seconds of the runner's own time.
        """
        self.reply = {}
        try:
            self.reply = reply = self.runner.ask(request, budget_s)
        except TimeoutError as exc:
            self.runner.end()
            # check: answer-is-in-time
            raise self.verdict(EvalStatus.TIMEOUT, "Timeout", self._late(str(exc))) from None
        except GrantExceeded as exc:
            raise self.verdict(EvalStatus.OOM, exc.kind, str(exc)) from None  # check: answer-is-within-the-grant
        except RunnerDied as died:
            raise self.crash(died.code) from None  # check: answering-runner-lives
        except ProtocolError as exc:
            raise self._forged(str(exc)) from exc  # check: answer-is-a-message
        # Before a failure: a candidate that was caught may raise to be judged for that instead.
        if notes := reply.get("notes"):
            raise self.parse(lambda: self._noted(notes))  # check: nothing-was-noted
        if "failure" in reply:
            raise self.parse(lambda: self._failure(reply["failure"]))  # check: forward-does-not-fail
        return reply

    def parse(self, read: Callable[[], Parsed]) -> Parsed:
        """Read a part of a reply (raises Verdict if that fails, as our runner writes only what can be read)."""
        try:
            return read()
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as exc:
            raise self._forged(f"{type(exc).__name__}: {exc}") from exc  # check: message-parses

    def verdict(self, status: EvalStatus, kind: str, message: str, tail: str = "") -> Verdict:
        """Make a verdict whose texts have no paths and addresses of this run."""
        message, tail, kind = (self._clean(text) for text in (message, tail, kind))
        return Verdict(status, EvalError(stage=self.stage, type=kind, message=message, traceback_tail=tail or None))

    def hacking(self, flag: HackFlag, message: str) -> Verdict:
        """Make the verdict on a candidate that games the evaluation."""
        verdict = self.verdict(EvalStatus.HACKING, flag.value.title().replace("_", ""), message)
        return Verdict(verdict.status, verdict.error, (flag,))

    def crash(self, code: int) -> Verdict:
        """Make the verdict on a runner that ended with this exit status, or minus this signal.

        A candidate can cause a SIGKILL in many ways, so a SIGKILL counts as its crash. The exception: Linux has counted
        a kill for lack of memory, and the runner used little memory.

        Raises:
            InfraError: the runner ended before the candidate's code ran, or the machine has no memory left.
        """
        if not self.begun:
            raise InfraError(f"a runner ended with status {code} before it had loaded anything")
        if code == -signal.SIGKILL and not self.runner.was_killed and oom_kills() > self._oom_kills:
            return self._starved()
        # Only of a crash: elsewhere a candidate's output is its own affair, and would fill the feedback.
        printed = self.runner.output.decode(errors="replace").strip()[-500:]
        how = f"by signal {_signal_name(-code)}" if code < 0 else f"with status {code}"
        verdict = self.verdict(EvalStatus.CRASH, "Crash", f"the process ended {how} during {self.stage}", printed)
        return Verdict(verdict.status, verdict.error.model_copy(update={"signal": -code if code < 0 else None}))

    def _starved(self) -> Verdict:
        used, granted = self.runner.grown_mb, self._options.memory_mb
        if used < _INNOCENT_SHARE * granted:
            raise InfraError(
                f"the machine is out of memory: the kernel killed a runner during {self.stage}, which had used {used} "
                f"MB of kernelgym.memory_mb = {granted}; run fewer judges or give the machine more"
            )
        text = f"the machine ran out of memory with {used} of kernelgym.memory_mb = {granted} MB in use by the process"
        return self.verdict(EvalStatus.OOM, "MemoryExceeded", text)

    def _late(self, what: str) -> str:
        name = "load_timeout_s" if self.stage == "load" else "run_timeout_s"
        return f"{self.stage} used up kernelgym.{name} = {getattr(self._options, name):g} s of {what}"

    def _noted(self, notes: object) -> Verdict:
        flags = read_notes(notes)
        verdict = self.hacking(*next(iter(flags.items())))
        return Verdict(verdict.status, verdict.error, tuple(sorted(flags, key=lambda flag: flag.value)))

    def _failure(self, failure: Any) -> Verdict:
        status = EvalStatus(failure["status"])
        # Only what lowers a verdict: a forged message could else report `ok`, or blame the gym (`infra_error`).
        if status not in _RUNNER_STATUSES:
            raise ValueError(f"a runner cannot report {status}")  # check: failure-is-a-runners
        return self.verdict(
            status, str(failure["type"]), str(failure["message"]), str(failure.get("traceback_tail", ""))
        )

    def _forged(self, reason: str) -> Verdict:
        return self.hacking(HackFlag.FORGED_MESSAGE, f"the process sent what no runner sends: {reason}")

    def _clean(self, text: str) -> str:
        text = text.encode(errors="replace").decode().replace(self.file, CANDIDATE_FILE)
        # Equal failures have equal texts, in every run and for every address.
        return ADDRESS.sub("0x...", text)[:_MESSAGE_CHARS]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return str(number)
