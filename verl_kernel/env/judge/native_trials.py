# SPDX-License-Identifier: Apache-2.0
"""Trials whose kernels run as Triton compiles them (`kernelgym.execute: both`), after they were right interpreted."""

from __future__ import annotations

from typing import Any

from verl_kernel.env.ipc.execution_messages import Stopped
from verl_kernel.env.ipc.messages import Mode
from verl_kernel.env.judge.candidate_session import CandidateSession
from verl_kernel.env.judge.executing import Execution
from verl_kernel.env.judge.loading import Loading
from verl_kernel.env.judge.output_check import difference
from verl_kernel.env.judge.runner_client import Verdict
from verl_kernel.env.reference.kinds import Kind
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.seeding import seed_of
from verl_kernel.env.tamper.hack_flags import HackFlag
from verl_kernel.errors import InfraError

_STATUSES = {
    "refused": EvalStatus.COMPILE_ERROR, "endless": EvalStatus.TIMEOUT,
    "divergent": EvalStatus.RUNTIME_ERROR, "stopped": EvalStatus.RUNTIME_ERROR,
}  # fmt: skip
"""Of what stops a launch; an access to memory that stops one is a crash."""
_COMPILED = "compiled for a GPU and executed"


class NativeTrials:
    """A candidate's trials in the executing process, until that cannot go on; then what it was is noted.

    Args:
        loading: of the candidate, which began the process.
        env: `EvalResult.env`, which says under `executed` whether all trials ran natively.
    """

    def __init__(self, loading: Loading, env: dict[str, Any]) -> None:
        self._loading, self._env = loading, env
        self._env["executed"] = "interpreted and compiled"
        self.gave_up = False
        """Whether some trial could not be done."""

    def trial(self, session: CandidateSession, number: int, kind: Kind, mode: Mode | None) -> None:
        """Do a trial once more, compiled (raises Verdict where it does not come out right).

        Args:
            session: the loaded candidate.
            number: of the trial.
            kind: of its inputs.
            mode: of torch and of the candidate's modules.
        """
        if self.gave_up:
            return
        execution = self._loading.execution
        assert execution is not None  # it began with the runner
        try:
            execution.report(seed_of(session.secret, b"order", number.to_bytes(8, "little")))
        except InfraError as exc:
            return self._give_up(str(exc))
        return self._judge(session, execution, self._forward(session, number, kind, mode))

    def _forward(self, session: CandidateSession, number: int, kind: Kind, mode: Mode | None) -> Verdict | None:
        """Do the forward; what is wrong with it, or None (raises Verdict where the runner has ended)."""
        try:
            agreement = session.forward(number, kind=kind, inspect=False, mode=mode, is_native=True)
            if not agreement.ok:
                text = f"{_COMPILED}, the kernels give other values than interpreted: {difference(agreement)}"
                return session.client.verdict(EvalStatus.INCORRECT, "CompiledDiffers", text)
        except Verdict as verdict:
            if not session.client.runner.alive:  # its launch may still run
                raise
            return verdict
        return None

    def _judge(self, session: CandidateSession, execution: Execution, wrong: Verdict | None) -> None:
        try:
            stopped = execution.report()["stopped"]
        except InfraError as exc:
            return self._give_up(str(exc))
        if stopped is not None and stopped["kind"] == "unknown":
            return self._give_up(f"{stopped['kernel']}: {stopped['message']}")
        if stopped is not None:
            raise _verdict(session, stopped)
        if wrong is not None:
            raise wrong
        return None

    def _give_up(self, reason: str) -> None:
        """What cannot be executed here is no fault of the candidate's: its values are judged, and it gets no time."""
        self.gave_up, self._env["executed"] = True, f"interpreted only: {reason}"


def _verdict(session: CandidateSession, stopped: Stopped) -> Verdict:
    if stopped["kind"] == "unreadable":
        return session.client.hacking(HackFlag.FORGED_MESSAGE, stopped["message"])
    status = _STATUSES.get(stopped["kind"], EvalStatus.CRASH)
    kind = "Compiled" + stopped["kind"].title().replace("_", "")
    line = "" if stopped["line"] is None else f"line {stopped['line']}, "
    return session.client.verdict(status, kind, f"{line}in {stopped['kernel']}, {_COMPILED}: {stopped['message']}")
