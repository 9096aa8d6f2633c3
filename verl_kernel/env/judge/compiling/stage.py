# SPDX-License-Identifier: Apache-2.0
"""The stage `compile` of an evaluation: it begins while trials run, and gives its verdict after the last trial."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from verl_kernel.env.compilation.description import Description, Unit, function_texts, source_lines
from verl_kernel.env.compilation.outcome import PASSED_OVER, Outcome, Refusal, Resources
from verl_kernel.env.compilation.targets import blocks_per_sm, wrong_grid
from verl_kernel.env.judge.candidate_session import CandidateSession
from verl_kernel.env.judge.compiling.compiler import CompileJob, LaunchCompiler
from verl_kernel.env.judge.findings import Findings
from verl_kernel.env.judge.runner_client import Verdict
from verl_kernel.env.result import CompiledKernel, EvalStatus
from verl_kernel.env.trace import TraceEvent

_ANSWER_S = 20.0
SENTENCE, LINE, _NAME = 210, 80, 40
"""Most characters of the compiler's sentence, of the source line and of a name; feedback has room for all."""


class Unfit(Exception):
    """An autotuner chose a configuration that does not fit the target; on a GPU it would choose another."""

    def __init__(self, variant: str) -> None:
        super().__init__(variant)
        self.variant = variant


class CompileStage:
    """Compilation of one candidate's launches.

    Args:
        compiler: the judge's.
        source: the candidate's text.
        findings: where compiled kernels are noted.
        may_choose_again: whether an autotuner may choose another configuration.
    """

    def __init__(self, compiler: LaunchCompiler, source: str, findings: Findings, may_choose_again: bool) -> None:
        self._compiler, self._findings, self._may_choose_again = compiler, findings, may_choose_again
        self._tuned: set[str] = set()
        self._lines = source_lines(source)
        self._job: CompileJob = compiler.job(source, function_texts(source))
        self._units: dict[str, Unit] = {}

    def look(self, session: CandidateSession) -> None:
        """Begin to compile the launches that are new in the latest forward (raises Verdict)."""
        variants = {event.variant: None for event in self._own(session, session.traces[-1])}
        if not variants.keys() <= self._units.keys():
            reply = session.client.ask({"describe": True}, _ANSWER_S)
            session.client.parse(lambda: self._add(Description.from_json(reply["description"]), list(variants)))

    def finish(self, session: CandidateSession) -> None:
        """Wait for the compiler.

        Raises:
            Verdict: the compiler refuses a launch, or no GPU can launch the compiled kernel.
            Unfit: the same, but an autotuner has other configurations.
            InfraError: the compiler failed, and the candidate is not the reason.
        """
        compiled = self._job.result()
        self._findings.compiled_for = self._compiler.target.name
        for unit, outcome in compiled:
            if isinstance(outcome.result, Refusal):
                self._refuse_configuration(unit, outcome.result)
                raise self._verdict(session, unit, outcome.result)
        for event in (event for trace in session.traces for event in self._own(session, trace)):
            if (reason := wrong_grid(event.grid)) is not None:
                raise self._verdict(session, self._units[event.variant], Refusal("OutOfResources", reason, 0))
        kernels = tuple(self._kernel(unit, outcome) for unit, outcome in compiled)
        self._findings.compiled_kernels, session.blocks_per_sm = kernels, _occupancy(kernels)

    def stop(self) -> None:
        """Stop compiling."""
        self._job.stop()

    def _refuse_configuration(self, unit: Unit, refusal: Refusal) -> None:
        """Raise Unfit if an autotuner would skip the configuration for this refusal."""
        if self._may_choose_again and refusal.kind in PASSED_OVER and unit.digest() in self._tuned:
            raise Unfit(unit.digest())

    def _own(self, session: CandidateSession, trace: Sequence[TraceEvent]) -> list[TraceEvent]:
        """Return the launches of a forward that needed a compiled kernel of the candidate."""
        launches = (event for event in trace if event.kind == "launch" and not event.failed)
        return [event for event in launches if event.source == session.source]

    def _add(self, description: Description, variants: list[str]) -> None:
        """Add launches that are new (raises LookupError if a launch of the trace is not described)."""
        units = {unit.digest(): unit for unit in map(description.unit, description.launches)}
        self._tuned |= set(description.tuned)
        for variant in variants:
            if variant not in self._units:
                self._job.add(units[variant])
                self._units[variant] = units[variant]

    def _kernel(self, unit: Unit, outcome: Outcome) -> CompiledKernel:
        used = cast(Resources, outcome.result)
        return CompiledKernel(
            name=unit.functions[0].name, registers=used.registers, spills=used.spills, shared=used.shared,
            warps=used.warps, blocks_per_sm=blocks_per_sm(used, self._compiler.target), compile_s=outcome.seconds,
        )  # fmt: skip

    def _verdict(self, session: CandidateSession, unit: Unit, refusal: Refusal) -> Verdict:
        number = refusal.function if refusal.function in range(len(unit.functions)) else 0
        function = unit.functions[number or 0]
        line = min(function.line + refusal.offset, len(self._lines))
        text = self._lines[line - 1].strip()
        where = f"line {line}, in {cut(function.name, _NAME)}, compiled for {self._compiler.target.name}"
        reason = cut(refusal.message, SENTENCE)
        return session.client.verdict(EvalStatus.COMPILE_ERROR, refusal.kind, f"{where}: {reason}: `{cut(text, LINE)}`")


def _occupancy(kernels: Iterable[CompiledKernel]) -> dict[str, int]:
    """Return the fewest blocks per SM by kernel; fewer blocks never shorten a time (`machine.price`)."""
    known: dict[str, int] = {}
    for kernel in kernels:
        if kernel.blocks_per_sm:
            known[kernel.name] = min(known.get(kernel.name, kernel.blocks_per_sm), kernel.blocks_per_sm)
    return known


def cut(text: str, most: int) -> str:
    """Return a text of at most this many characters, cut at its end if it is longer."""
    return text if len(text) <= most else f"{text[: most - 4]} ..."
