# SPDX-License-Identifier: Apache-2.0
"""Trials whose kernels run in an executing process; the judge believes that process, not the runner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from verl_kernel.env.compilation.description import source_lines
from verl_kernel.env.ipc.execution_messages import Reported, Shows, Stopped, Work
from verl_kernel.env.judge.candidate_session import CandidateSession
from verl_kernel.env.judge.compiling.stage import LINE, SENTENCE, cut
from verl_kernel.env.judge.execution_client import Execution, ExecutionDied
from verl_kernel.env.judge.loading import Loading
from verl_kernel.env.judge.runner_client import ADDRESS, Verdict
from verl_kernel.env.reference.kinds import Kind
from verl_kernel.env.result import LONGEST_NAME, LONGEST_SENTENCE, EvalStatus, MemoryFinding
from verl_kernel.env.seeding import seed_of
from verl_kernel.env.tamper.hack_flags import HackFlag
from verl_kernel.env.tamper.trace_checks import own_launches
from verl_kernel.env.trace import TraceEvent

_STATUSES = {
    "unknown": EvalStatus.RUNTIME_ERROR,
    "endless": EvalStatus.TIMEOUT,
    "race": EvalStatus.UNSAFE,
    "unwritten": EvalStatus.UNSAFE,
    "not_watched": EvalStatus.UNSAFE,
    "outside_view": EvalStatus.UNSAFE,
    "divergent": EvalStatus.RUNTIME_ERROR,
    "stopped": EvalStatus.RUNTIME_ERROR,
}
"""Status by what stopped a launch; whatever is not listed, such as a wrong access to memory, is a crash."""
_COMPILED = "compiled for a GPU and executed"
_MOST_FINDINGS = 32
"""Most memory findings that an evaluation keeps."""
_FINDINGS: dict[str, Literal["race", "uninitialised_read", "outside_view"]] = {
    "race": "race",
    "unwritten": "uninitialised_read",
    "outside_view": "outside_view",
}
Done = TypeVar("Done")
_FIELDS: tuple[Literal["variant", "bytes", "flops", "half_flops", "stored", "computed", "steps"], ...] = (
    *("variant", "bytes", "flops", "half_flops", "stored", "computed", "steps"),
)


class NativeTrials:
    """A candidate's trials in the executing process.

    Args:
        loading: of the candidate; it has started the executing process.
        env: `EvalResult.env`, where kernels are noted that were not watched for races.
        checked_in: number of the trial that is checked for races, uninitialised reads and accesses outside views.
        checks: `kernelgym.memory_checks`.
    """

    def __init__(self, loading: Loading, env: dict[str, Any], checked_in: int = -1, checks: str = "off") -> None:
        self._loading, self._env = loading, env
        self._refuses = checks == "refuse"
        self._checked_in = -1 if checks == "off" else checked_in
        self._is_first = True

    def watched(self, session: CandidateSession, number: int, kind: Kind, forward: Callable[[], Done]) -> Done:
        """Do a forward (raises Verdict, also for what the executing process reports of it).

        Args:
            session: the loaded candidate.
            number: of the trial.
            kind: of its inputs.
            forward: does it.
        """
        execution = self._loading.execution
        assert execution is not None  # it was started with the runner
        is_checked = number == self._checked_in
        # Inputs at an end may hide what a store computes: they show that it varies, and no more.
        self._begin(session, execution, number, "all" if kind in ("drawn", "varied") else "variation", is_checked)
        traces_before = len(session.traces)
        try:
            result = forward()
        except Verdict:
            # A launch that faulted makes the runner raise: the fault is the better verdict.
            if session.client.runner.alive:  # a dead runner's launch may still run
                self._refuse(session, self._report(session, execution))
            raise
        reported = self._report(session, execution)
        self._refuse(session, reported)
        if reported["not_watched"]:
            self._env["races_not_watched"] = reported["not_watched"]
        if is_checked:
            findings = session.client.parse(lambda: [*map(_finding, reported["found"])])
            session.memory_findings = tuple(dict.fromkeys([*(session.memory_findings or ()), *findings]))[
                :_MOST_FINDINGS
            ]
        _compare(session, reported["works"])
        session.all_launch_reports.append(reported["works"])
        # Not in the other mode, whose forwards clocks do not see.
        if len(session.traces) > traces_before:
            session.launch_reports.append(reported["works"])
        return result

    def begin_ablated(self, session: CandidateSession, number: int) -> None:
        """Tell the executing process, if there is one, that a forward of an ablation begins (raises Verdict)."""
        execution = self._loading.execution
        if execution is not None:
            self._begin(session, execution, number, "nothing")

    def _begin(
        self, session: CandidateSession, execution: Execution, number: int, shows: Shows, watch: bool = False
    ) -> None:
        # Two forwards share an order, which the second one reverses: each of any two programs comes first once, so that
        # a program which needs the other's result is found.
        seed = seed_of(session.secret, b"order", (number // 2).to_bytes(8, "little"))
        new_size, self._is_first = self._is_first, False
        self._guarded(
            session,
            lambda: execution.begin(
                seed=seed,
                watch=watch,
                shows=shows,
                refuses=self._refuses,
                backwards=number % 2 == 1,
                new_size=new_size,
            ),
        )

    def _report(self, session: CandidateSession, execution: Execution) -> Reported:
        return self._guarded(session, execution.report)

    def _guarded(self, session: CandidateSession, ask: Callable[[], Done]) -> Done:
        """Ask the executing process (raises Verdict if the kernel ended it)."""
        try:
            return ask()
        except ExecutionDied as exc:
            if exc.by_kernel:
                # check: emulator-survives
                raise session.client.verdict(EvalStatus.CRASH, "ExecutionDied", str(exc)) from None
            raise

    def _refuse(self, session: CandidateSession, reported: Reported) -> None:
        """Raise a verdict if a launch did not run to its end."""
        stopped = reported["stopped"]
        if stopped is not None and stopped["kind"] == "refused":
            kind, sentence = session.client.parse(lambda: self._refusal(stopped))
            raise session.client.verdict(EvalStatus.COMPILE_ERROR, kind, sentence)  # check: launch-compiles
        if stopped is not None:
            raise _verdict(session, stopped)  # check: launch-does-not-fault

    def _refusal(self, stopped: Stopped) -> tuple[str, str]:
        """Why the compiler refused a kernel: the kind, and a sentence with the text of the line."""
        line, lines = stopped["line"], source_lines(self._loading.source)
        kind, _, message = stopped["message"].partition(": ")
        where = "" if line is None else f"line {line}, "
        text = f": `{cut(lines[line - 1].strip(), LINE)}`" if line is not None and 0 < line <= len(lines) else ""
        return kind, f"{where}in {stopped['kernel']}, compiled for a GPU: {cut(message, SENTENCE)}{text}"


def _compare(session: CandidateSession, works: list[Work]) -> None:
    """Compare the trace of the latest forward with what the executing process did (raises Verdict if they differ)."""
    # The latest forward is in one of the two lists, by its mode.
    traces = (*session.traces[-1:], *session.other_traces[-1:])
    recorded = [list(map(event_fields, own_launches(trace, session.source))) for trace in traces]
    if list(map(work_fields, works)) not in recorded:
        text = "the record of a forward is not what its kernels did"
        raise session.client.hacking(HackFlag.EDITED_TRACE, text)  # check: trace-agrees-with-execution


def event_fields(event: TraceEvent) -> list[object]:
    """Return what a launch did, by a trace."""
    fields = event.to_json()
    return [fields[key] for key in _FIELDS]


def work_fields(work: Work) -> list[object]:
    """Return the same, by the executing process."""
    return [work[key] for key in _FIELDS]


def _finding(stopped: Stopped) -> MemoryFinding:
    kernel, message = stopped["kernel"][:LONGEST_NAME], ADDRESS.sub("0x...", stopped["message"])[:LONGEST_SENTENCE]
    return MemoryFinding(kind=_FINDINGS[stopped["kind"]], kernel=kernel, line=stopped["line"], message=message)


def _verdict(session: CandidateSession, stopped: Stopped) -> Verdict:
    if stopped["kind"] == "unreadable":  # our runner writes only what can be read
        return session.client.hacking(HackFlag.FORGED_MESSAGE, stopped["message"])
    status = _STATUSES.get(stopped["kind"], EvalStatus.CRASH)
    kind = "Compiled" + stopped["kind"].title().replace("_", "")
    line = "" if stopped["line"] is None else f"line {stopped['line']}, "
    return session.client.verdict(status, kind, f"{line}in {stopped['kernel']}, {_COMPILED}: {stopped['message']}")
