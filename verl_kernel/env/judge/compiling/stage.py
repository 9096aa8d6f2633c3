# SPDX-License-Identifier: Apache-2.0
"""The stage `compile` of an evaluation: it begins while trials run, and gives its verdict after the last trial."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import cast

from verl_kernel.env.compilation.description import Description, Unit, function_texts, source_lines
from verl_kernel.env.compilation.outcome import PASSED_OVER, Outcome, Refusal, Resources
from verl_kernel.env.compilation.target import Target
from verl_kernel.env.judge.candidate_session import CandidateSession
from verl_kernel.env.judge.compiling.compiler import CompileJob, LaunchCompiler
from verl_kernel.env.judge.findings import Findings
from verl_kernel.env.judge.runner_client import Verdict
from verl_kernel.env.result import CompiledKernel, EvalStatus, Limit
from verl_kernel.env.trace import TraceEvent

_ANSWER_S = 20.0
"""Seconds of own time for a runner's description of its launches."""
SENTENCE = 210
"""Most characters of the compiler's sentence; feedback has room for this, a source line and a name."""
LINE = 80
"""Most characters of a source line."""
_NAME = 40
"""Most characters of a function's name."""


_NO_ALLOCATOR = "a launch needs memory beside its arguments, and no allocator is set: call triton.set_allocator"


class DoesNotFit(Exception):
    """An autotuner chose a configuration that does not fit a target; on a GPU it would choose another."""

    def __init__(self, variant: str) -> None:
        super().__init__(variant)
        self.variant = variant


class CompileStage:
    """Compilation of one candidate's launches.

    Args:
        compilers: the judge's, one for each target.
        source: the candidate's text.
        findings: where compiled kernels are noted.
        may_choose_again: whether an autotuner may choose another configuration.
        priced: prefix of the priced GPU's targets; the first target with it gives the number of blocks per SM.
        namespace: whose candidate it is.
    """

    def __init__(
        self,
        compilers: Sequence[LaunchCompiler],
        source: str,
        findings: Findings,
        *,
        may_choose_again: bool,
        priced: str,
        namespace: str,
    ) -> None:
        self._findings, self._may_choose_again, self._priced = findings, may_choose_again, priced
        self._tuned: set[str] = set()
        self._lines = source_lines(source)
        self._sets_allocator = "set_allocator" in source
        # From the candidate's text, not from what the runner says: a described function must stand in it.
        texts = function_texts(source)
        self._jobs = [(compiler.target, compiler.job(source, texts, namespace)) for compiler in compilers]
        self._units: dict[str, Unit] = {}
        self._transposing: dict[Target, dict[str, float]] = {}

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
            DoesNotFit: the same, but an autotuner has other configurations.
            InfraError: the compiler failed, and the candidate is not the reason.
        """
        names = [target.name for target, _ in self._jobs]
        self._findings.compiled_for = names[0] if len(names) == 1 else tuple(names)
        kernels = {target: self._compiled(session, target, job) for target, job in self._jobs}
        self._findings.compiled_kernels = tuple(kernel for compiled in kernels.values() for kernel in compiled.values())
        priced = next((target for target in kernels if target.name.startswith(self._priced)), None)
        if priced is not None:
            session.kernels, session.transposing = kernels[priced], self._transposing[priced]
        session.blocks_per_sm = occupancy((kernel.name, kernel.blocks_per_sm) for kernel in session.kernels.values())

    def stop(self) -> None:
        """Stop compiling."""
        for _, job in self._jobs:
            job.stop()

    def _compiled(self, session: CandidateSession, target: Target, job: CompileJob) -> dict[str, CompiledKernel]:
        """Return the kernels that a target's compiler has made, by their units (raises what `finish` raises)."""
        compiled = job.result()
        for unit, outcome in compiled:
            if isinstance(outcome.result, Refusal):
                self._refuse_configuration(unit, outcome.result)
                raise self._verdict(session, target, unit, outcome.result)  # check: kernel-fits-the-target
            if outcome.result.scratch and not self._sets_allocator:
                # check: launch-has-an-allocator
                raise self._verdict(session, target, unit, Refusal("NoAllocator", _NO_ALLOCATOR, 0))
        used = {unit.digest(): cast(Resources, outcome.result) for unit, outcome in compiled}
        self._transposing[target] = transposing((unit.functions[0].name, used[unit.digest()]) for unit, _ in compiled)
        # Grids may differ between trials, where sizes change: each launch is checked, not each kernel.
        for event in (event for trace in session.traces for event in self._own(session, trace)):
            if (reason := target.wrong_grid(event.grid, used[event.variant])) is not None:
                # check: grid-fits-the-target
                raise self._verdict(session, target, self._units[event.variant], Refusal("OutOfResources", reason, 0))
        return {unit.digest(): _kernel(unit, outcome, target) for unit, outcome in compiled}

    def _refuse_configuration(self, unit: Unit, refusal: Refusal) -> None:
        """Raise DoesNotFit if an autotuner would skip the configuration for this refusal."""
        if self._may_choose_again and refusal.kind in PASSED_OVER and unit.digest() in self._tuned:
            raise DoesNotFit(unit.digest())  # check: configuration-fits

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
                for _, job in self._jobs:
                    job.add(units[variant])
                self._units[variant] = units[variant]

    def _verdict(self, session: CandidateSession, target: Target, unit: Unit, refusal: Refusal) -> Verdict:
        number = refusal.function if refusal.function in range(len(unit.functions)) else 0
        function = unit.functions[number or 0]
        line = min(function.line + refusal.offset, len(self._lines))
        text = self._lines[line - 1].strip()
        where = f"line {line}, in {cut(function.name, _NAME)}, compiled for {target.name}"
        reason = cut(refusal.message, SENTENCE)
        return session.client.verdict(EvalStatus.COMPILE_ERROR, refusal.kind, f"{where}: {reason}: `{cut(text, LINE)}`")


def _kernel(unit: Unit, outcome: Outcome, target: Target) -> CompiledKernel:
    used = cast(Resources, outcome.result)
    return CompiledKernel(
        name=unit.functions[0].name,
        target=target.name,
        registers=used.registers,
        accumulators=used.accumulators,
        scalars=used.scalars,
        spills=used.spills,
        shared=used.shared,
        warps=used.warps,
        matrix=used.matrix,
        blocks_per_sm=target.blocks(used),
        limit=limit(used, target),
        compile_s=outcome.seconds,
    )


def limit(used: Resources, target: Target) -> Limit | None:
    """Return what keeps more blocks of a kernel from a multiprocessor; None if its registers are not known."""
    # A limit is what, taken away alone, would let more blocks onto the multiprocessor.
    without_registers, without_shared = replace(used, registers=used.registers and 1), replace(used, shared=0)
    actual, by_shared, by_registers, unlimited = map(
        target.blocks, (used, without_registers, without_shared, replace(without_registers, shared=0))
    )
    if None in (actual, unlimited) or actual == unlimited:
        return None if actual is None else "warps and blocks"
    return "registers" if actual == by_registers else "shared memory" if actual == by_shared else None


def occupancy(blocks: Iterable[tuple[str, int | None]]) -> dict[str, int]:
    """Return the fewest blocks per SM by kernel; fewer blocks never shorten a time (`machine.price`).

    Args:
        blocks: names of compiled kernels, each with how many of its blocks an SM holds.
    """
    fewest: dict[str, int] = {}
    for name, fitting in blocks:
        if fitting:
            fewest[name] = min(fewest.get(name, fitting), fitting)
    return fewest


def transposing(kernels: Iterable[tuple[str, Resources]]) -> dict[str, float]:
    """Return by kernel how many cycles of shared memory each byte takes that is staged there: the most of its variants.

    Args:
        kernels: names of compiled kernels, each with what it uses.
    """
    most: dict[str, float] = {}
    for name, used in kernels:
        if used.transposing:
            most[name] = max(most.get(name, 0.0), used.transposing / used.staged)
    return most


def cut(text: str, longest: int) -> str:
    """Return a text of at most this many characters, cut at its end if it is longer."""
    return text if len(text) <= longest else f"{text[: longest - 4]} ..."
