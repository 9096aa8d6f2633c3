# SPDX-License-Identifier: Apache-2.0
"""A loaded candidate is judged at one size of its task."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import torch

from verl_kernel.env.clocks.base import Measurement
from verl_kernel.env.clocks.needed_time import at_most_parity, bounded
from verl_kernel.env.gpus import gpu_named
from verl_kernel.env.judge.candidate_session import CandidateSession, CpuTime, hidden_work
from verl_kernel.env.judge.compiling.stage import CompileStage
from verl_kernel.env.judge.findings import Findings, Stages
from verl_kernel.env.judge.runner_client import Verdict
from verl_kernel.env.judge.steps import EvaluationContext, EvaluationSteps, LoadedCandidate
from verl_kernel.env.judge.trials.correctness import WHERE
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalResult, EvalStatus
from verl_kernel.env.tamper.hack_flags import HackFlag
from verl_kernel.env.tamper.trace_checks import lazy_flags, moves_too_little, own_launches
from verl_kernel.env.trace import TraceEvent

_HARMLESS = (EvalStatus.INCORRECT, EvalStatus.RUNTIME_ERROR, EvalStatus.COMPILE_ERROR)
"""Verdicts after which a runner that lives can do other forwards."""


class SizeEvaluation:
    """The stages of one candidate from its trials on, at one size of its task.

    Args:
        context: what the judge gives to the evaluation.
        request: for the candidate at this size.
        steps: how trials are done and how time is measured.
        stages: of the evaluation.
    """

    def __init__(
        self, context: EvaluationContext, request: EvalRequest, steps: EvaluationSteps, stages: Stages
    ) -> None:
        self._context, self._options, self._device = context, context.options, context.device
        self._request, self.steps, self._stages = request, steps, stages
        self.begin()

    def begin(self) -> None:
        """Begin, again if need be, without findings."""
        true_size = None if self.steps.times is None else self.steps.times.true_size
        self.findings = Findings(self._device.timing_source, self._environment(), true_size=true_size)
        self._candidate: LoadedCandidate | None = None
        self._measured: Measurement | None = None

    @contextmanager
    def settled(self) -> Iterator[None]:
        """Note a verdict that ends what is done in the body."""
        try:
            yield
        except Verdict as verdict:
            self.findings.settle(verdict.status, verdict.error, verdict.flags)

    @property
    def is_begun(self) -> bool:
        """Whether the candidate was judged at this size, or refused there."""
        return self._candidate is not None or self.findings.has_ended

    @property
    def has_lost_runner(self) -> bool:
        """Whether the candidate's runner has ended, or may be in another state than between two forwards."""
        if self._candidate is None or (self.findings.has_ended and self.findings.status not in _HARMLESS):
            return True
        return not self._candidate.session.client.runner.alive

    @property
    def vouched(self) -> Sequence[TraceEvent] | None:
        """A forward of which an ablation showed that its kernels matter; None if none has shown it."""
        if self._candidate is None or self.findings.decoy_kernel is not False or not self._candidate.session.traces:
            return None
        return self._candidate.session.traces[-1]

    def result(self, seconds: Mapping[str, float]) -> EvalResult:
        """Return the result of all findings; `seconds` are those of the stages, in order."""
        return self.findings.result(self._request, self.steps.reference.task_flags, seconds)

    def follow(self, first: SizeEvaluation) -> None:
        """Take over what was found when the candidate was loaded."""
        self.findings.compiled, self.findings.isolation = True, first.findings.isolation
        self.findings.env["weights"] = first.findings.env["weights"]

    def judge(self, candidate: LoadedCandidate, may_choose_again: bool) -> None:
        """Do the trials, compile, and measure what needs the runner (raises Verdict).

        Args:
            candidate: at this size.
            may_choose_again: whether an autotuner may choose another configuration.
        """
        session = candidate.session
        self._candidate = candidate
        # A commitment to the secret, from which inputs, plan and samples follow.
        self.findings.seed_commit = hashlib.sha256(session.secret).hexdigest()
        try:
            with self._beside(candidate, may_choose_again):
                with self._stages.stage("correctness"):
                    self.steps.trials.take(candidate)
                if candidate.compiling is not None:
                    with self._stages.stage("compile"):
                        candidate.compiling.finish(session)
                if self.steps.times is None:  # a survey
                    return
                with self._stages.stage("clock"):
                    self._measured = self.steps.times.while_running(candidate)
                    self.findings.env.update(self._device.seen())
        finally:
            self.findings.memory_findings = session.memory_findings

    def time(self) -> None:
        """Judge times and decoys after the runner's exit, if the trials have ended well (raises Verdict)."""
        if self._candidate is None or self._measured is None or self.steps.times is None or self.findings.has_ended:
            return
        with self._stages.stage("clock"):
            self._take(self._candidate.session, self.steps.times.after_exit(self._candidate, self._measured))
            self._find_decoys(self._candidate.session)
        self.findings.correctness = True

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
            self.findings,
            may_choose_again=may_choose_again,
            priced=priced,
            namespace=self._context.namespace,
        )
        try:
            yield
        finally:
            candidate.compiling.stop()

    def _take(self, session: CandidateSession, measured: Measurement) -> None:
        """Keep the measurement (raises Verdict if it shows that the candidate hides work)."""
        measured = bounded(measured, session.comparable[0], self.steps.reference.task_flags, self._options.gpu_profile)
        if self.findings.env.get("weights") == "seeded" and self.steps.reference.has_changed_weights:
            # Both sides kept initial weights, so what the program does with others is untested.
            measured = at_most_parity(measured)
        self.findings.env.update(measured.facts)
        self.findings.measured, self.findings.reference_mode = measured, measured.reference_mode
        self.findings.hack_flags = lazy_flags(session.traces, session.work(session.traces[-1]), session.source)
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
        elif self.findings.decoy_kernel:
            where = self.findings.ablated_where
            text = f"the output stays right when the kernels are not launched{where}: it does not come from them"
        else:
            return
        self.findings.decoy_kernel = True
        if self._options.decoys == "record":  # for ablation studies
            return
        # check: launches-matter
        raise session.client.verdict(EvalStatus.DECOY, "LaunchIrrelevant" if launched else "NoLaunch", text)

    def _environment(self) -> dict[str, Any]:
        profile = {"gpu_profile": self._options.gpu_profile} if self._device.is_counted else {}
        rules = {"float32": self._options.float32}
        return {"device": self._device.name, **profile, **rules, **_versions(), **self._device.facts()}


def _hidden(entry: CpuTime) -> str:
    return (
        f"a forward takes {entry.total_ms:.0f} ms of processor time, of which its launches and torch ops explain "
        f"{entry.explained_ms:.0f}: compute in kernels"
    )


@lru_cache(maxsize=1)
def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), "torch": torch.__version__, "triton": version("triton")}
