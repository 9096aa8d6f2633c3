# SPDX-License-Identifier: Apache-2.0
"""The trial in the other mode: with gradients recorded, and switched between train and eval where the task allows it.

Trials and clocks run without gradients, in train mode, and a program can read both. So one trial, at a secret place,
runs as the program's users may run it, and must be right and launch kernels there too. Where it runs anything else
than it does in the usual mode, one more ablation asks whether its output comes from its kernels there.
"""

from __future__ import annotations

from collections.abc import Sequence

from verl_kernel.env.comparison.compare import Agreement
from verl_kernel.env.ipc.messages import Mode
from verl_kernel.env.judge.candidate_session import CandidateSession
from verl_kernel.env.judge.runner_client import Verdict
from verl_kernel.env.reference.kinds import Kind
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.tamper.trace_checks import is_moving, own_launches
from verl_kernel.env.trace import TraceEvent

_FAILED = (EvalStatus.RUNTIME_ERROR, EvalStatus.OOM)
"""What an exception in a forward is."""
WHERE = ", where gradients are recorded and modules are in their other mode (train or eval)"
"""Part of a sentence on what happened in the other mode."""


def other_mode(session: CandidateSession, gradients: bool = True) -> Mode:
    """The mode; its modules are switched where the reference's output is the same in train and eval mode."""
    return {"gradients": gradients, "switched": session.reference.is_switchable}


def forward_in_other_mode(
    session: CandidateSession, number: int, kind: Kind, inspect: bool
) -> tuple[Agreement, Mode | None]:
    """Do one trial in the other mode, and say in which it was done in the end.

    Autograd refuses what is right without it (results written into given tensors, changes of parameters), so a program
    that fails with gradients is tried again without them.
    """
    mode: Mode | None = other_mode(session)
    try:
        return session.forward(number, kind=kind, inspect=inspect, mode=mode), mode
    except Verdict as verdict:
        if verdict.status not in _FAILED or not session.client.runner.alive:
            raise
    mode = other_mode(session, gradients=False) if session.reference.is_switchable else None
    return session.forward(number, kind=kind, inspect=inspect, mode=mode), mode


def differs(session: CandidateSession) -> bool:
    """Whether the latest forward in the other mode launched or computed anything else than that in the usual one."""
    if not (session.other_traces and session.traces):
        return False
    usual, other = (_done(traces[-1], session.source) for traces in (session.traces, session.other_traces))
    return usual != other


def _done(trace: Sequence[TraceEvent], file: str) -> list[str]:
    """Names of its own launches and of what torch computed, in order."""
    computed = [event.kind == "op" and not is_moving(event.name) for event in trace]
    pairs = zip(trace, computed, strict=True)
    return [event.name for event, is_computed in pairs if is_computed or own_launches([event], file)]
