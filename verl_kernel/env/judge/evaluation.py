# SPDX-License-Identifier: Apache-2.0
"""The stages of one evaluation, in order; each can end it.

static: the gate reads the source.
load: a fresh runner imports the source and builds the model.
correctness: the candidate runs trials on secret inputs, which are drawn after the load. The judge compares every output
and keeps a trace of every forward. At a secret place among the trials comes the ablation: a forward without what the
kernels compute. Its output must not be right.
compile: Triton's compiler compiles for a GPU what the trials launched (where `kernelgym.compile_for` asks for it). It
begins while the trials run.
exit: the runner ends by itself, without an error.
clock: time and coverage. A simulated clock reads the traces of the trials, so every timed call has been verified. A
clock that measures needs the runner, so it measures before the exit; its findings are judged after the exit.

From load to exit the judge holds a lock on the device. Other judges share it, except while a clock measures. `wait` is
the time that the judge waited for the lock.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

import torch

from verl_kernel.env import static_check
from verl_kernel.env.clocks.base import Measurement
from verl_kernel.env.clocks.needed_time import at_most_parity, bounded
from verl_kernel.env.compilation.targets import MOST_CHOICES
from verl_kernel.env.gpus import gpu_named
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.judge.candidate_session import CandidateSession, CpuTime, MemoryLayout, hidden_work
from verl_kernel.env.judge.compiling.stage import CompileStage, DoesNotFit
from verl_kernel.env.judge.findings import Findings, Stages
from verl_kernel.env.judge.loading import Loading
from verl_kernel.env.judge.runner_client import Verdict
from verl_kernel.env.judge.steps import EvaluationContext, EvaluationSteps, LoadedCandidate, TimeStep
from verl_kernel.env.judge.trials.correctness import WHERE
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalError, EvalResult, EvalStatus
from verl_kernel.env.sandbox.scratch import Scratch
from verl_kernel.env.tamper.hack_flags import HackFlag
from verl_kernel.env.tamper.trace_checks import lazy_flags, moves_too_little, own_launches


class CandidateEvaluation:
    """The stages of one candidate; used once.

    Args:
        context: what the judge gives to the evaluation.
        reference: the prepared reference of the task.
        steps: how trials are done and how time is measured.
    """

    def __init__(self, context: EvaluationContext, reference: Reference, steps: EvaluationSteps) -> None:
        self._context, self._options, self._device = context, context.options, context.device
        self._reference, self._steps = reference, steps
        true_size = None if steps.times is None else steps.times.true_size
        self._findings = Findings(self._device.timing_source, self._environment(), true_size=true_size)
        self._stages = Stages(self._device)

    def run(self, request: EvalRequest) -> EvalResult:
        """Go through the stages until one of them ends it."""
        try:
            with self._stages.stage("static"):
                self._static(request.source)
            with self._device.shared():
                self._dynamic(request.source)
        except Verdict as verdict:
            self._findings.settle(verdict.status, verdict.error, verdict.flags)
        return self._findings.result(request, self._reference.task_flags, self._stages.seconds())

    def _static(self, source: str) -> None:
        # Before the gate: parsing a long text takes time and memory in the judge.
        limit = self._options.max_source_kb
        if len(source) > limit << 10:
            raise _refused("size", f"the source is longer than {limit} kB")  # check: source-is-short
        if self._options.static_check == "off":
            return
        entry = self._reference.task.candidate_class
        violations = static_check.check(source, self._options.static_check, entry)
        if violations:
            first = violations[0]
            where = f"line {first.line}: " if first.line else ""
            raise _refused(first.rule, f"{where}{first.reason}")  # check: gate-accepts

    def _dynamic(self, source: str) -> None:
        """Load and judge; repeat if an autotuner chose a configuration that does not fit the target and has others."""
        ruled_out: list[str] = []
        while True:
            try:
                self._run(source, ruled_out)
                return
            except DoesNotFit as unfit:
                # On a GPU the autotuner would have skipped this configuration: judge it again without.
                ruled_out.append(unfit.variant)
                self._findings.decoy_kernel = None

    def _run(self, source: str, ruled_out: list[str]) -> None:
        layout = MemoryLayout(self._reference)
        with closing(Scratch(source)) as scratch, closing(SharedMemory.create(layout.size)) as memory:
            loading = self._loading(scratch, memory, ruled_out)
            with self._stages.stage("load"):
                # Other processes may have taken the GPU's memory: that is the gym's failure, not the candidate's.
                self._device.grant(self._options.memory_mb)
                session = loading.start(
                    self._reference,
                    layout=layout,
                    stages=self._stages,
                    guard=self._context.guard,
                    is_sealed=self._device.seals_traces,
                )
            candidate = LoadedCandidate(session=session, loading=loading, findings=self._findings, stages=self._stages)
            try:
                with self._stages.stage("load"):
                    loading.load(session)
                with self._beside(candidate, len(ruled_out) < MOST_CHOICES):
                    self._judge(candidate)
            finally:
                session.client.runner.end()
                loading.end()
                self._findings.memory_findings = session.memory_findings

    def _loading(self, scratch: Scratch, memory: SharedMemory, ruled_out: list[str]) -> Loading:
        emulator = self._context.emulator
        return Loading(
            options=self._options,
            zygote=self._context.zygote,
            scratch=scratch,
            memory=memory,
            findings=self._findings,
            describe=None if emulator is None and not self._context.compilers else ruled_out,
            execution=None if emulator is None else partial(emulator.begin, scratch.source),
        )

    @contextmanager
    def _beside(self, candidate: LoadedCandidate, may_choose_again: bool) -> Iterator[None]:
        """Compile beside the trials, where that is asked for; stop when they end."""
        if not self._context.compilers:
            yield
            return
        priced = gpu_named(self._options.gpu_profile).targets
        candidate.compiling = CompileStage(
            self._context.compilers,
            candidate.loading.source,
            self._findings,
            may_choose_again=may_choose_again,
            priced=priced,
            namespace=self._context.namespace,
        )
        try:
            yield
        finally:
            candidate.compiling.stop()

    def _judge(self, candidate: LoadedCandidate) -> None:
        session = candidate.session
        # Drawn only now: code that ran while the candidate was loaded cannot know any input.
        session.secret, session.compiled = self._context.draw_secret(), self._context.compiled
        # A commitment to the secret, from which inputs, plan and samples follow.
        self._findings.seed_commit = hashlib.sha256(session.secret).hexdigest()
        with self._stages.stage("correctness"):
            self._steps.trials.take(candidate)
        if candidate.compiling is not None:
            with self._stages.stage("compile"):
                candidate.compiling.finish(session)
        if self._steps.times is None:  # a survey
            return
        self._time(candidate, self._steps.times)
        self._findings.correctness = True

    def _time(self, candidate: LoadedCandidate, times: TimeStep) -> None:
        """Measure time, let the runner exit, and judge what both show (raises Verdict)."""
        session = candidate.session
        with self._stages.stage("clock"):
            measured = times.while_running(candidate)
            self._findings.env.update(self._device.seen())
        with self._stages.stage("exit"):
            # No launch comes any more, and the executing process ends while the runner exits.
            candidate.loading.dismiss()
            if code := session.client.runner.finish():
                raise session.client.crash(code)  # check: exit-after-timing-is-clean
        with self._stages.stage("clock"):
            self._take(session, times.after_exit(candidate, measured))
            self._find_decoys(session)

    def _take(self, session: CandidateSession, measured: Measurement) -> None:
        """Keep the measurement (raises Verdict if it shows that the candidate hides work)."""
        measured = bounded(measured, session.comparable[0], self._reference.task_flags, self._options.gpu_profile)
        if self._findings.env.get("weights") == "seeded" and self._reference.has_changed_weights:
            # Both sides kept initial weights, so what the program does with others is untested.
            measured = at_most_parity(measured)
        self._findings.env.update(measured.facts)
        self._findings.measured, self._findings.reference_mode = measured, measured.reference_mode
        self._findings.hack_flags = lazy_flags(session.traces, session.work(session.traces[-1]), session.source)
        if measured.refusal is not None:
            raise session.client.hacking(*measured.refusal)  # check: time-is-possible
        if self._device.seals_traces:  # the device counts work instead of measuring it
            self._refuse_hidden(session)

    def _refuse_hidden(self, session: CandidateSession) -> None:
        """Refuse work that the simulated clock cannot see; a clock that measures includes such work."""
        if entry := hidden_work(session.entries):
            raise session.client.hacking(HackFlag.HIDDEN_WORK, _hidden(entry))  # check: work-is-not-hidden
        pairs = [*zip(session.traces, session.works, strict=True)]
        # The other mode too: work that is hidden there only would still be hidden.
        pairs += zip(session.other_traces, session.other_works, strict=True)
        if any(moves_too_little(trace, work.events, work.written_bytes) for trace, work in pairs):
            text = "fewer bytes were counted than the output has"
            raise session.client.hacking(HackFlag.IMPOSSIBLE_TRACE, text)  # check: trace-is-possible

    def _find_decoys(self, session: CandidateSession) -> None:
        file = session.source
        usual, in_other_mode = (
            all(own_launches(trace, file) for trace in traces) for traces in (session.traces, session.other_traces)
        )
        launched = usual and in_other_mode
        if not launched:
            where = WHERE if usual else ""
            text = f"a forward launched no kernel of the source{where}: its output does not come from Triton"
        elif self._findings.decoy_kernel:
            where = self._findings.ablated_where
            text = f"the output stays right when the kernels are not launched{where}: it does not come from them"
        else:
            return
        self._findings.decoy_kernel = True
        if self._options.decoys == "record":  # for ablation studies
            return
        # check: launches-matter
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
