# SPDX-License-Identifier: Apache-2.0
"""Trials whose kernels run as Triton compiles them (`kernelgym.execute`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeVar

from verl_kernel.env.ipc.execution_messages import Reported, Stopped, Work
from verl_kernel.env.ipc.messages import Mode
from verl_kernel.env.judge.candidate_session import CandidateSession
from verl_kernel.env.judge.executing import Execution, ExecutionDied
from verl_kernel.env.judge.loading import Loading
from verl_kernel.env.judge.memory_findings import with_reported
from verl_kernel.env.judge.output_check import difference
from verl_kernel.env.judge.runner_client import Verdict
from verl_kernel.env.reference.kinds import Kind
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.seeding import seed_of
from verl_kernel.env.tamper.hack_flags import HackFlag
from verl_kernel.env.tamper.trace_checks import own_launches
from verl_kernel.env.trace import TraceEvent

_STATUSES = {
    "refused": EvalStatus.COMPILE_ERROR, "unknown": EvalStatus.RUNTIME_ERROR, "endless": EvalStatus.TIMEOUT,
    "race": EvalStatus.UNSAFE, "unwritten": EvalStatus.UNSAFE, "divergent": EvalStatus.RUNTIME_ERROR,
    "stopped": EvalStatus.RUNTIME_ERROR,
}  # fmt: skip
"""Of what stops a launch; an access to memory that stops one is a crash."""
_COMPILED = "compiled for a GPU and executed"
Done = TypeVar("Done")
_FIELDS: tuple[Literal["bytes", "flops", "half_flops", "stored", "computed", "steps"], ...] = (
    *("bytes", "flops", "half_flops", "stored", "computed", "steps"),
)


class NativeTrials:
    """A candidate's trials in the executing process.

    Args:
        loading: of the candidate, which began the process.
        env: `EvalResult.env`, which says under `executed` how trials ran.
        alone: whether kernels run nowhere else; then what cannot be executed is refused. Else it is noted, and no
            further trial tried.
        checked_in: number of the trial whose memory is checked: for races and reads of what nobody has written.
        checks: `kernelgym.memory_checks`; where kernels are interpreted too, nothing is recorded here.
    """

    def __init__(
        self, loading: Loading, env: dict[str, Any], alone: bool, checked_in: int = -1, checks: str = "off"
    ) -> None:
        self._loading, self._env, self.alone = loading, env, alone
        self._refuses = checks == "refuse"
        self._checked_in = checked_in if self._refuses or (alone and checks == "record") else -1
        self._env["executed"] = "compiled" if alone else "interpreted and compiled"
        self.works: list[list[Work]] = []
        """What the launches of each forward did that clocks see, in the order of the session's traces."""
        self.gave_up = False
        """Whether some trial could not be done."""

    def again(self, session: CandidateSession, number: int, kind: Kind, mode: Mode | None) -> None:
        """Do a trial once more, compiled (raises Verdict where it does not come out right).

        Args:
            session: the loaded candidate.
            number: of the trial.
            kind: of its inputs.
            mode: of torch and of the candidate's modules.
        """
        if self.gave_up:
            return
        try:
            forward = partial(session.forward, number, kind=kind, inspect=False, mode=mode, again=True)
            agreement = self.watched(session, number, forward)
        except _NotExecuted as exc:
            self.gave_up, self._env["executed"] = True, f"interpreted only: {exc}"
            return
        if not agreement.ok:
            text = f"{_COMPILED}, the kernels give other values than interpreted: {difference(agreement)}"
            raise session.client.verdict(EvalStatus.INCORRECT, "CompiledDiffers", text)

    def watched(self, session: CandidateSession, number: int, forward: Callable[[], Done]) -> Done:
        """Do a forward whose kernels run compiled (raises Verdict, by what the executing process says of it).

        Args:
            session: the loaded candidate.
            number: of the trial.
            forward: does it.
        """
        execution = self._loading.execution
        assert execution is not None  # it began with the runner
        is_checked = number == self._checked_in
        self._begin(session, execution, number, watch=is_checked)
        before = len(session.traces)
        try:
            done = forward()
        except Verdict:
            if session.client.runner.alive:  # else its launch may still run
                self._refuse(session, self._report(session, execution))
            raise
        reported = self._report(session, execution)
        self._refuse(session, reported)
        if reported["not_watched"]:
            self._env["races_not_watched"] = reported["not_watched"]
        if is_checked and self.alone:
            known, found = session.client.memory_findings or (), list(map(_finding, reported["found"]))
            session.client.memory_findings = with_reported(known, {"memory": found})
        if self.alone:
            _compare(session, reported["works"])
        if len(session.traces) > before:
            self.works.append(reported["works"])
        return done

    def begin_ablated(self, session: CandidateSession, number: int) -> None:
        """Tell the executing process that a forward of an ablation begins, if it is asked in one (raises Verdict)."""
        execution = self._loading.execution
        if self.alone and execution is not None:
            self._begin(session, execution, number, ablated=True)

    def _begin(
        self, session: CandidateSession, execution: Execution, number: int, watch: bool = False, ablated: bool = False
    ) -> None:
        seed = seed_of(session.secret, b"order", (number // 2).to_bytes(8, "little"))
        self._guarded(session, lambda: execution.begin(seed, watch, ablated, self._refuses, number % 2 == 1))

    def _report(self, session: CandidateSession, execution: Execution) -> Reported:
        return self._guarded(session, execution.report)

    def _guarded(self, session: CandidateSession, ask: Callable[[], Done]) -> Done:
        """Ask the executing process, whose end may be the kernel's doing."""
        try:
            return ask()
        except ExecutionDied as exc:
            if not self.alone:
                raise _NotExecuted(str(exc)) from None
            if exc.by_kernel:
                raise session.client.verdict(EvalStatus.CRASH, "ExecutionDied", str(exc)) from None
            raise

    def _refuse(self, session: CandidateSession, reported: Reported) -> None:
        """Raise why a launch did not run to its end."""
        stopped = reported["stopped"]
        if stopped is None:
            return
        if stopped["kind"] == "unknown" and not self.alone:
            raise _NotExecuted(f"{stopped['kernel']}: {stopped['message']}")
        raise _verdict(session, stopped)


class _NotExecuted(Exception):
    """What cannot be executed here is no fault of the candidate's: its values are judged, and it gets no time."""


def _compare(session: CandidateSession, works: list[Work]) -> None:
    """Hold the trace of the latest forward against what the executing process did (raises Verdict)."""
    traces = (*session.traces[-1:], *session.other_traces[-1:])
    told = [list(map(launched, own_launches(trace, session.source))) for trace in traces]
    if list(map(worked, works)) not in told:
        text = "the record of a forward is not what its kernels did"
        raise session.client.hacking(HackFlag.EDITED_TRACE, text)


def launched(event: TraceEvent) -> list[object]:
    """What a trace says that a launch did."""
    told = event.to_json()
    return [told[key] for key in _FIELDS]


def worked(work: Work) -> list[object]:
    """The same from the executing process."""
    return [work[key] for key in _FIELDS]


def _finding(found: Stopped) -> dict[str, object]:
    """What was found, as a `result.MemoryFinding`."""
    kind = "race" if found["kind"] == "race" else "uninitialised_read"
    return {"kind": kind, "kernel": found["kernel"], "line": found["line"]}


def _verdict(session: CandidateSession, stopped: Stopped) -> Verdict:
    if stopped["kind"] == "unreadable":
        return session.client.hacking(HackFlag.FORGED_MESSAGE, stopped["message"])
    status = _STATUSES.get(stopped["kind"], EvalStatus.CRASH)
    kind = "Compiled" + stopped["kind"].title().replace("_", "")
    line = "" if stopped["line"] is None else f"line {stopped['line']}, "
    return session.client.verdict(status, kind, f"{line}in {stopped['kernel']}, {_COMPILED}: {stopped['message']}")
