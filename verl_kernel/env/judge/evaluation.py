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
from collections.abc import Sequence
from contextlib import closing
from functools import partial

from verl_kernel.env import static_check
from verl_kernel.env.compilation.targets import MOST_CHOICES
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.judge.candidate_session import CandidateSession, MemoryLayout
from verl_kernel.env.judge.compiling.stage import DoesNotFit
from verl_kernel.env.judge.findings import Stages
from verl_kernel.env.judge.loading import Loading
from verl_kernel.env.judge.runner_client import Verdict
from verl_kernel.env.judge.size_evaluation import SizeEvaluation
from verl_kernel.env.judge.steps import EvaluationContext, EvaluationSteps, LoadedCandidate
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalError, EvalResult, EvalStatus
from verl_kernel.env.sandbox.scratch import Scratch
from verl_kernel.env.seeding import seed_of


class CandidateEvaluation:
    """The stages of one candidate; used once.

    Args:
        context: what the judge gives to the evaluation.
        requests: for the candidate, at each size of its task.
        sizes: how it is judged at each of them.
    """

    def __init__(
        self, context: EvaluationContext, requests: Sequence[EvalRequest], sizes: Sequence[EvaluationSteps]
    ) -> None:
        self._context, self._options, self._device = context, context.options, context.device
        self._source, self._stages = requests[0].source, Stages(context.device)
        self._sizes = [SizeEvaluation(context, *size, self._stages) for size in zip(requests, sizes, strict=True)]
        self._first = self._sizes[0]

    def run(self) -> list[EvalResult]:
        """Go through the stages, at each size until one of them ends it; a refusal before the trials holds for all."""
        with self._first.settled():
            with self._stages.stage("static"):
                self._static(self._source)
            with self._device.shared():
                self._dynamic()
        seconds = self._stages.seconds()
        judged = [size for size in self._sizes if size.is_begun]
        return [self._first.result(seconds), *(size.result({}) for size in judged[1:])]

    def _static(self, source: str) -> None:
        # Before the gate: parsing a long text takes time and memory in the judge.
        limit = self._options.max_source_kb
        if len(source) > limit << 10:
            raise _refused("size", f"the source is longer than {limit} kB")  # check: source-is-short
        if self._options.static_check == "off":
            return
        entry = self._first.steps.reference.task.candidate_class
        violations = static_check.check(source, self._options.static_check, entry)
        if violations:
            first = violations[0]
            where = f"line {first.line}: " if first.line else ""
            raise _refused(first.rule, f"{where}{first.reason}")  # check: gate-accepts

    def _dynamic(self) -> None:
        """Load and judge; repeat if an autotuner chose a configuration that does not fit the target and has others."""
        ruled_out: list[str] = []
        while True:
            try:
                self._run(ruled_out)
                return
            except DoesNotFit as unfit:
                # On a GPU the autotuner would have skipped this configuration: judge it again without.
                ruled_out.append(unfit.variant)
                for size in self._sizes:
                    size.begin()

    def _run(self, ruled_out: list[str]) -> None:
        layouts = [MemoryLayout(size.steps.reference) for size in self._sizes]
        memory_bytes = max(layout.size for layout in layouts)
        with closing(Scratch(self._source)) as scratch, closing(SharedMemory.create(memory_bytes)) as memory:
            loading = self._loading(scratch, memory, ruled_out)
            with self._stages.stage("load"):
                # Other processes may have taken the GPU's memory: that is the gym's failure, not the candidate's.
                self._device.grant(self._options.memory_mb)
                session = loading.start(
                    self._first.steps.reference,
                    layout=layouts[0],
                    stages=self._stages,
                    guard=self._context.guard,
                    is_sealed=self._device.seals_traces,
                )
            try:
                with self._stages.stage("load"):
                    loading.load(session)
                self._judge(loading, session, len(ruled_out) < MOST_CHOICES)
            finally:
                session.client.runner.end()
                loading.end()

    def _loading(self, scratch: Scratch, memory: SharedMemory, ruled_out: list[str]) -> Loading:
        emulator = self._context.emulator
        return Loading(
            options=self._options,
            zygote=self._context.zygote,
            scratch=scratch,
            memory=memory,
            findings=self._first.findings,
            describe=None if emulator is None and not self._context.compilers else ruled_out,
            execution=None if emulator is None else partial(emulator.begin, scratch.source),
        )

    def _judge(self, loading: Loading, session: CandidateSession, may_choose_again: bool) -> None:
        """Judge the loaded candidate at one size after the other, let its runner exit, and judge its times."""
        # Drawn only now: code that ran while the candidate was loaded cannot know any input.
        secret, earlier = self._context.draw_secret(), None
        further = self._sizes[1:]
        audited = further[seed_of(secret, b"audited size") % len(further)] if further else None
        for size in self._sizes:
            with size.settled():  # a wrong answer at one size says nothing of the others
                if earlier is not None:
                    size.follow(self._first)
                    with self._stages.stage("load"):
                        session = loading.at_size(session, size.steps.reference, renew=earlier.has_lost_runner)
                session.secret, session.compiled = secret, size.steps.compiled
                candidate = LoadedCandidate(
                    session=session,
                    loading=loading,
                    findings=size.findings,
                    stages=self._stages,
                    vouched=None if earlier is None else self._first.vouched,
                    is_audited=size is audited,
                )
                size.judge(candidate, may_choose_again)
            earlier, secret = size, hashlib.sha256(b"size" + secret).digest()
        if size.steps.times is not None and not size.findings.has_ended:
            with size.settled(), self._stages.stage("exit"):
                # No launch comes any more, and the executing process ends while the runner exits.
                loading.dismiss()
                if code := session.client.runner.finish():
                    raise session.client.crash(code)  # check: exit-after-timing-is-clean
        for size in self._sizes:
            with size.settled():
                size.time()


def _refused(rule: str, message: str) -> Verdict:
    return Verdict(EvalStatus.REJECTED_STATIC, EvalError(stage="static", type=rule, message=message))
