# SPDX-License-Identifier: Apache-2.0
"""The stages of one evaluation, in order; each can end it.

static: the gate reads the source. load: a fresh runner imports it and builds the model. correctness: trials on
secret inputs drawn after that, every output compared, every forward traced; among them, at a secret place, the
ablation: one without what its kernels compute, which must not come out right. compile: what the trials launched, by
Triton's own compiler for a GPU, begun beside the trials (where `kernelgym.compile_for` asks for it). exit: the runner
ends by itself, cleanly. clock: time and coverage, on a simulated clock from the traces, so that every timed call is a
verified one; a clock that measures asks the runner, so it comes before the exit and its verdict after. From load to
exit the judge holds a lock on the device, shared with other judges, or exclusive while a clock measures; `wait` is the
time it took to get it.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, TypeVar, cast

import torch

from verl_kernel.env import static_check
from verl_kernel.env.clocks.base import Clock, Measurement
from verl_kernel.env.clocks.needed import bounded
from verl_kernel.env.comparison.compare import Agreement
from verl_kernel.env.compilation.targets import MOST_CHOICES
from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.ipc.messages import Mode
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.judge.ablation import Ablation
from verl_kernel.env.judge.candidate_session import CandidateSession, CpuTime, MemoryLayout, hidden_work
from verl_kernel.env.judge.compiling.compiler import LaunchCompiler
from verl_kernel.env.judge.compiling.stage import CompileStage, Unfit
from verl_kernel.env.judge.executing import CandidateExecutor
from verl_kernel.env.judge.findings import Findings, Stages
from verl_kernel.env.judge.loading import Loading
from verl_kernel.env.judge.native_trials import NativeTrials
from verl_kernel.env.judge.output_check import difference
from verl_kernel.env.judge.processes.zygote import Zygote
from verl_kernel.env.judge.runner_client import Verdict
from verl_kernel.env.judge.trials.plan import Counts, TrialPlan, worst
from verl_kernel.env.options import GymOptions
from verl_kernel.env.reference.kinds import Kind
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalError, EvalResult, EvalStatus, Trials
from verl_kernel.env.sandbox.scratch import Scratch
from verl_kernel.env.tamper.hack_flags import HackFlag
from verl_kernel.env.tamper.trace_checks import is_moving, lazy_flags, moves_too_little, own_launches
from verl_kernel.env.trace import TraceEvent

# The trial in the other mode: with gradients recorded, and switched between train and eval where the task allows it.
#
# Trials and clocks run without gradients, in train mode, and a program can read both. So one trial, at a secret
# place, runs as the program's users may run it, and must be right and launch kernels there too. Where it runs
# anything else than it does in the usual mode, one more ablation asks whether its output comes from its kernels
# there.


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


Done = TypeVar("Done")
_APART = 1000
"""Trials of the ablation in the other mode come so far behind the others, where no other ablation gets to."""


@dataclass(frozen=True, kw_only=True)
class EvaluationContext:
    """What a judge gives to one evaluation."""

    options: GymOptions
    device: DeviceBackend
    zygote: Zygote
    """Forks the runners."""
    executor: CandidateExecutor | None
    """Runs kernels for the runners; None where the device runs them itself."""
    guard: Callable[[], AbstractContextManager[object]]
    """Around everything that a reference does."""
    draw_secret: Callable[[], bytes]
    """Draws the evaluation's secret, once the candidate is loaded."""
    clock: Clock
    counts: Counts | None = None
    """How many trials of each kind there are; None for the usual ones."""
    compiler: LaunchCompiler | None = None
    """Compiles the launches beside the trials; None where that is not asked for."""


class Evaluation:
    """One candidate's way through the stages; used once.

    Args:
        context: what it takes from the judge.
        reference: the prepared reference of the task.
    """

    def __init__(self, context: EvaluationContext, reference: Reference) -> None:
        self._options, self._device, self._zygote = context.options, context.device, context.zygote
        self._guard, self._draw_secret, self._clock = context.guard, context.draw_secret, context.clock
        self._counts, self._compiler, self._executor = context.counts, context.compiler, context.executor
        self._reference = reference
        self._found = Findings(self._device.timing_source, self._environment())
        self._stages = Stages(self._device)
        self._native: NativeTrials | None = None
        self._compiling: CompileStage | None = None
        self._where = ""
        """In which mode the latest ablation was made, for a sentence."""
        self._loading: Loading
        self._session: CandidateSession

    def run(self, request: EvalRequest) -> EvalResult:
        """Go through the stages until one of them ends it."""
        try:
            with self._stages.stage("static"):
                self._static(request.source)
            with self._device.shared():
                self._dynamic(request.source)
        except Verdict as verdict:
            self._found.settle(verdict.status, verdict.error, verdict.flags)
        return self._found.result(request, self._reference.task_flags, self._stages.seconds())

    def _static(self, source: str) -> None:
        limit = self._options.max_source_kb
        if len(source) > limit << 10:
            raise _refused("size", f"the source is longer than {limit} kB")
        if self._options.static_check == "off":
            return
        entry = self._reference.task.candidate_class
        violations = static_check.check(source, self._options.static_check, entry)
        if violations:
            first = violations[0]
            where = f"line {first.line}: " if first.line else ""
            raise _refused(first.rule, f"{where}{first.reason}")

    def _dynamic(self, source: str) -> None:
        """Load and judge, again where an autotuner chose what does not fit the target and has other choices."""
        ruled_out: list[str] = []
        while True:
            try:
                self._run(source, ruled_out)
                return
            except Unfit as unfit:
                ruled_out.append(unfit.variant)
                self._found.decoy_kernel = None

    def _run(self, source: str, ruled_out: list[str]) -> None:
        layout = MemoryLayout(self._reference)
        with closing(Scratch(source)) as scratch, closing(SharedMemory.create(layout.size)) as memory:
            describe = None if self._compiler is None and self._executor is None else ruled_out
            execution = None if self._executor is None else partial(self._executor.begin, source)
            self._loading = Loading(
                options=self._options, zygote=self._zygote, scratch=scratch, memory=memory, findings=self._found,
                describe=describe, execution=execution,
            )  # fmt: skip
            with self._stages.stage("load"):
                self._device.grant(self._options.memory_mb)
                seals = self._device.seals_traces
                self._session = self._loading.start(
                    self._reference, layout=layout, stages=self._stages, guard=self._guard, is_sealed=seals
                )
            try:
                with self._stages.stage("load"):
                    self._loading.load(self._session)
                with self._beside(source, len(ruled_out) < MOST_CHOICES):
                    self._judge(self._session)
            finally:
                self._session.client.runner.end()
                self._loading.end()
                self._found.memory_findings = self._session.memory_findings

    @contextmanager
    def _beside(self, source: str, may_choose_again: bool) -> Iterator[None]:
        """What compiles beside the trials; it ends with them."""
        if self._compiler is None:
            yield
            return
        self._compiling = CompileStage(self._compiler, source, self._found, may_choose_again)
        try:
            yield
        finally:
            self._compiling.stop()

    def _judge(self, session: CandidateSession) -> None:
        session.secret = self._draw_secret()
        self._found.seed_commit = hashlib.sha256(session.secret).hexdigest()
        with self._stages.stage("correctness"):
            self._correctness(session)
        if self._compiling is not None:
            with self._stages.stage("compile"):
                self._compiling.finish(session)
        with self._stages.stage("clock"):
            measured = self._measure(session)
            self._found.env.update(self._device.seen())
        with self._stages.stage("exit"):
            self._loading.dismiss()
            if code := session.client.runner.finish():
                raise session.client.crash(code)
        with self._stages.stage("clock"):
            self._take(session, measured)
            self._find_decoys(session)
        self._found.correctness = True

    def _measure(self, session: CandidateSession) -> Measurement:
        """Times and profile, while the runner is still alive."""
        return self._clock.measure(session)

    def _correctness(self, session: CandidateSession) -> None:
        """Trials; some of them varied, one in the other mode, and the ablation and an inspection, at secret places."""
        plan = self._plan(session.secret)
        self._begin_trials(plan.inspected)
        self._found.trials, mode = Trials(passed=0, total=plan.total), None
        for number in range(plan.total):
            mode = self._trial(session, plan, number) or mode
            if self._compiling is not None:
                self._compiling.look(session)
            if number >= plan.ablated and self._may_be_decoy(session):
                with self._stages.stage("ablation"):
                    self._ablation(session, plan.total)
        if self._found.decoy_kernel is False and mode is not None and differs(session):
            with self._stages.stage("ablation"):
                self._found.decoy_kernel = self._ablated(session, plan.total + _APART, mode).finds_decoy()
                self._where = WHERE

    def _trial(self, session: CandidateSession, plan: TrialPlan, number: int) -> Mode | None:
        """Do one trial; the mode that it was done in, None for the usual one (raises Verdict)."""
        forward = partial(self._forward, session, plan, number)
        agreement, mode = self._watched(session, number, plan.kinds[number], forward)
        self._found.trials = worst(cast(Trials, self._found.trials), agreement)
        if not agreement.ok:
            text = difference(agreement) + (WHERE if mode else "")
            raise session.client.verdict(EvalStatus.INCORRECT, "WrongValues", text)
        return mode

    def _begin_trials(self, checked_in: int) -> None:
        """The forwards of trials begin, the memory of one of them checked."""
        if self._executor is not None:
            self._native = NativeTrials(self._loading, self._found.env, checked_in, self._options.memory_checks)

    def _watched(self, session: CandidateSession, number: int, kind: Kind, forward: Callable[[], Done]) -> Done:
        return forward() if self._native is None else self._native.watched(session, number, kind, forward)

    def _forward(self, session: CandidateSession, plan: TrialPlan, number: int) -> tuple[Agreement, Mode | None]:
        kind, inspect = plan.kinds[number], number == plan.inspected
        if number == plan.switched:
            return forward_in_other_mode(session, number, kind, inspect)
        return session.forward(number, kind=kind, inspect=inspect), None

    def _plan(self, secret: bytes) -> TrialPlan:
        if self._counts is None:
            return TrialPlan.draw(secret, self._options.correctness_trials)
        self._found.env["trial_kinds"] = dict(self._counts)
        return TrialPlan.chosen(secret, self._counts)

    def _may_be_decoy(self, session: CandidateSession) -> bool:
        undecided = self._options.ablation and self._found.decoy_kernel is None
        return undecided and bool(own_launches(session.traces[-1], session.source))

    def _ablation(self, session: CandidateSession, total: int) -> None:
        ablation = self._ablated(session, total)
        self._found.decoy_kernel = ablation.finds_decoy()
        if not self._found.decoy_kernel:
            ablation.find_idle()

    def _ablated(self, session: CandidateSession, number: int, mode: Mode | None = None) -> Ablation:
        return Ablation(session, number, lambda: self._loading.again(session), mode, self._native)

    def _take(self, session: CandidateSession, measured: Measurement) -> None:
        """Keep what the clock found, unless it shows that the candidate hides work."""
        measured = bounded(measured, session.comparable[0], self._reference.task_flags, self._options.gpu_profile)
        self._found.env.update(measured.facts)
        self._found.measured, self._found.reference_mode = measured, self._options.reference_mode
        self._found.hack_flags = lazy_flags(session.traces, session.work(session.traces[-1]), session.source)
        if measured.refusal is not None:
            raise session.client.hacking(*measured.refusal)
        if self._device.seals_traces:
            self._refuse_hidden(session)

    def _refuse_hidden(self, session: CandidateSession) -> None:
        """Refuse work that the simulated clock cannot see; a clock that measures sees it by itself."""
        if entry := hidden_work(session.entries):
            raise session.client.hacking(HackFlag.HIDDEN_WORK, _hidden(entry))
        pairs = [*zip(session.traces, session.works, strict=True)]
        pairs += zip(session.other_traces, session.other_works, strict=True)
        if any(moves_too_little(trace, work.events, work.written_bytes) for trace, work in pairs):
            text = "fewer bytes were counted than the output has"
            raise session.client.hacking(HackFlag.IMPOSSIBLE_TRACE, text)

    def _find_decoys(self, session: CandidateSession) -> None:
        file = session.source
        usual, other = (
            all(own_launches(trace, file) for trace in traces) for traces in (session.traces, session.other_traces)
        )
        launched = usual and other
        if not launched:
            where = WHERE if usual else ""
            text = f"a forward launched no kernel of the source{where}: its output does not come from Triton"
        elif self._found.decoy_kernel:
            text = f"the output stays right when the kernels are not launched{self._where}: it does not come from them"
        else:
            return
        self._found.decoy_kernel = True
        if self._options.decoys == "record":
            return
        raise session.client.verdict(EvalStatus.DECOY, "LaunchIrrelevant" if launched else "NoLaunch", text)

    def _environment(self) -> dict[str, Any]:
        versions = {"python": platform.python_version(), "torch": torch.__version__, "triton": version("triton")}
        profile = {"gpu_profile": self._options.gpu_profile} if self._device.is_counted else {}
        rules = {"float32": self._options.float32}
        return {"device": self._device.name, **profile, **rules, **versions, **self._device.facts()}


def _refused(rule: str, message: str) -> Verdict:
    return Verdict(EvalStatus.REJECTED_STATIC, EvalError(stage="static", type=rule, message=message))


def _hidden(entry: CpuTime) -> str:
    return (
        f"a forward takes {entry.total_ms:.0f} ms of processor time, of which its launches and torch ops explain "
        f"{entry.explained_ms:.0f}: compute in kernels"
    )
