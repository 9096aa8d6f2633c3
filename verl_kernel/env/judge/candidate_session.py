# SPDX-License-Identifier: Apache-2.0
"""A loaded candidate: its forwards on fresh secret inputs, with their traces and processor times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch

from verl_kernel.env.clocks.base import CompiledReference, Parsed
from verl_kernel.env.clocks.forward.launches import OwnLaunch, explanations, join
from verl_kernel.env.comparison.compare import Agreement
from verl_kernel.env.comparison.op_answers import hold, telling_seed
from verl_kernel.env.ipc.execution_messages import Work as Launched
from verl_kernel.env.ipc.messages import Claims, LeftOut, Mode, Offered, RunRequest, Time
from verl_kernel.env.ipc.op_samples import read_samples
from verl_kernel.env.ipc.shared_memory import SharedMemory, place
from verl_kernel.env.judge.output_check import OutputCheck
from verl_kernel.env.judge.runner_client import RunnerClient
from verl_kernel.env.machine.price import with_transposing
from verl_kernel.env.machine.roofline import Demand
from verl_kernel.env.reference.kinds import Kind
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.reference.trial import Trial
from verl_kernel.env.result import CompiledKernel, MemoryFinding
from verl_kernel.env.seeding import seed_of
from verl_kernel.env.tamper.hack_flags import HackFlag
from verl_kernel.env.tamper.seals import seals
from verl_kernel.env.tamper.trace_checks import OwnWork, computes, latest_known, own_work
from verl_kernel.env.trace import TraceEvent, load_events
from verl_kernel.env.weights import constant_value

# Finds hidden work: processor time of a forward that its launches and torch ops do not explain.
#
# The simulated clock charges only for counted work, so a forward that computes in Python would cost nothing. The judge
# reads the runner's processor time from the Linux kernel. The runner reports how much of it went into launches, ops and
# its own copying. An honest forward needs a few more milliseconds for its launch code.


ALLOWED_MS = 10.0
"""Milliseconds of a forward that need no explanation."""
ALLOWED_SHARE = 0.2
"""Further unexplained time that is allowed, as a share of the explained time."""
ALLOWED_MS_PER_EVENT = 0.1
"""Milliseconds allowed for the host's part of each launch or op."""
FIRST_MS = 200.0
"""Milliseconds allowed if an evaluation has one forward: a first forward imports, parses kernels and autotunes."""


@dataclass(frozen=True)
class CpuTime:
    """Processor time of one forward.

    Raises:
        ValueError: the runner's numbers are not times.
    """

    total_ms: float
    """Processor time of the runner from the request to the answer, as the judge measured it."""
    explained_ms: float
    """The part that went into launches, torch ops and the runner's copying, as the runner reports it."""
    events: int

    @classmethod
    def read(cls, total_ns: int, claimed_ns: Any, events: int) -> CpuTime:
        """Combine the judge's measurement with the runner's claim."""
        if not isinstance(claimed_ns, dict) or not all(
            type(value) is int and value >= 0 for value in claimed_ns.values()
        ):
            # A NaN would hide any time, since no comparison with it is true.
            # check: processor-times-are-integers
            raise ValueError("the processor times of an answer must be integers of at least 0")
        return cls(total_ns / 1e6, sum(claimed_ns.values()) / 1e6, events)

    @property
    def hidden_ms(self) -> float:
        """Unexplained time beyond what is allowed; negative if there is none."""
        granted = ALLOWED_MS + ALLOWED_SHARE * self.explained_ms + ALLOWED_MS_PER_EVENT * self.events
        return self.total_ms - self.explained_ms - granted


def hidden_work(entries: list[CpuTime]) -> CpuTime | None:
    """Return the typical forward of an evaluation if it hides work, else None.

    The typical forward is the lower median, as the first one may import and tune; the clock takes the median too. A
    forward that is the only one may hide `FIRST_MS`.
    """
    if not entries:
        return None
    ordered = sorted(entries, key=lambda entry: entry.hidden_ms)
    typical = ordered[(len(ordered) - 1) // 2]
    return typical if typical.hidden_ms > (FIRST_MS if len(entries) == 1 else 0) else None


Comparable = tuple[Sequence[TraceEvent], Sequence[Sequence[TraceEvent]]]
"""Events of the reference's forward, and of the candidate's forwards on inputs of that size."""


class MemoryLayout:
    """Places of an evaluation's tensors in shared memory: constants (model arguments, weights), inputs, outputs."""

    def __init__(self, reference: Reference) -> None:
        self.constants = [*reference.init.tensors, *reference.state.values()]
        self.specs, self.inputs_at = place(self.constants)
        self.outputs_at = self.inputs_at + reference.input_bytes
        self.size = self.outputs_at + reference.output_bytes


@dataclass(frozen=True)
class ReferenceWork:
    """The reference's part of a trial: the events of its forward, and how much it wrote."""

    events: list[TraceEvent]
    written_bytes: int


@dataclass(kw_only=True)
class CandidateSession:
    """One loaded candidate and what its forwards have shown; for clocks it is a `clocks.base.Session`."""

    reference: Reference
    client: RunnerClient
    memory: SharedMemory
    layout: MemoryLayout
    guard: Callable[[], AbstractContextManager[object]]
    """Is entered around every call of the reference."""
    check: OutputCheck
    is_sealed: bool
    """Whether the device seals the events of its trace."""
    text: str = ""
    """The candidate's text."""
    seconds_granted: float
    """Own time of the runner for all forwards together; forwards of an ablation are not charged."""
    secret: bytes = b""
    """Inputs are drawn from it; set once the candidate is loaded."""
    traces: list[list[TraceEvent]] = field(default_factory=list)
    entries: list[CpuTime] = field(default_factory=list)
    works: list[ReferenceWork] = field(default_factory=list)
    """What the reference did in the same trials."""
    other_traces: list[list[TraceEvent]] = field(default_factory=list)
    """Traces of forwards in the other mode, which clocks do not see; `other_works` belongs to them."""
    other_works: list[ReferenceWork] = field(default_factory=list)
    ineffective: set[int] = field(default_factory=set)
    """Numbers of the launches in a forward that make no difference, as an ablation showed."""
    only_copying: set[int] = field(default_factory=set)
    """Numbers of the launches that the ablation showed to only copy data."""
    compiled: CompiledReference | None = None
    """What the reference runs if it is compiled; None where that is not asked for, or is measured."""
    blocks_per_sm: dict[str, int] = field(default_factory=dict)
    """Blocks that an SM of the simulated GPU holds at a time, by kernel; known if the launches were compiled."""
    transposing: dict[str, float] = field(default_factory=dict)
    """Cycles of shared memory for each byte that a kernel stages there, by kernel (`with_transposing`)."""
    kernels: dict[str, CompiledKernel] = field(default_factory=dict)
    """Compiled kernels, by the variant of their launches; known if the launches were compiled."""
    launch_reports: list[list[Launched]] = field(default_factory=list)
    """What launches did in each forward of `traces`, by the executing process; empty if there is none."""
    all_launch_reports: list[list[Launched]] = field(default_factory=list)
    """The same for forwards in any mode."""
    memory_findings: tuple[MemoryFinding, ...] | None = None
    """What memory checks have found so far; None if no trial was checked."""
    charged: Comparable | None = None
    """Events at the true size, which a clock sees instead of the trials' events; None if the trials had that size."""
    charged_report: list[Launched] = field(default_factory=list)
    """What the candidate's launches did at the true size, by the executing process."""
    has_varied_output: bool = True
    """Whether the latest expected outputs hold different floating numbers, which are not right by chance."""
    _ablated: tuple[list[torch.Tensor], int, list[torch.Tensor]] | None = None
    """The latest forward's expected outputs, the seed of its samples, and its inputs, if it was ablated."""
    _latest: list[TraceEvent] = field(default_factory=list)
    """Trace of the latest forward in any mode, ablations left out."""
    demand: Demand | None = field(init=False)
    """Least work of a forward at the size that a clock sees; None if sizes change between trials."""
    seconds_left: float = field(init=False)

    def __post_init__(self) -> None:
        self.seconds_left = self.seconds_granted
        self.demand = self.reference.demand

    def forward(
        self,
        number: int,
        *,
        kind: Kind = "drawn",
        suppress: LeftOut | None = None,
        inspect: bool = True,
        mode: Mode | None = None,
    ) -> Agreement:
        """Run one forward and compare its output.

        Args:
            number: of the trial; inputs are drawn from it and the secret.
            kind: of its inputs (`Reference.trial`).
            suppress: the stores that launches leave out, in an ablation.
            inspect: whether the runner looks for functions that were replaced.
            mode: of torch and of the candidate's modules; None for the usual one.

        Raises:
            Verdict: the forward fails, or its output has a wrong form.
            TaskError: the reference fails on these inputs.
        """
        with self.guard():
            trial = self.reference.trial(self.secret, number, kind)
        answer = (trial.expected.tensors, trial.inputs.tensors)
        drawn = seed_of(self.secret, b"samples", number.to_bytes(8, "little"))
        seed = None if suppress is None else telling_seed(drawn, *answer)
        request: RunRequest = {
            **self.offer(trial), "suppress": suppress, "inspect": inspect, "mode": mode, "sample_seed": seed,
        }  # fmt: skip
        self._ablated = None if seed is None else (answer[0], seed, answer[1])
        inputs_before = self._inputs()
        form = self._run(request)
        if suppress is None:  # as many as traces, to which ablated forwards do not add
            (self.other_works if mode else self.works).append(ReferenceWork(trial.events, trial.written_bytes))
        expected = [tensor for tensor in trial.expected.tensors if tensor.is_floating_point() and tensor.numel()]
        self.has_varied_output = any(constant_value(tensor) is None for tensor in expected)
        actual, inputs_after = self._outputs(trial), self._inputs()
        self.check.form(trial, form)
        if not self.reference.mutates_inputs and inputs_before != inputs_after:
            raise self.check.wrong("InputsChanged", "the forward wrote to its inputs")  # check: inputs-are-unchanged
        return self.check.trial(trial, actual, ablated=suppress is not None)

    def torch_had_the_answer(self) -> bool:
        """Tell whether torch computed the whole output in the latest forward, an ablated one (raises Verdict)."""
        if self._ablated is None or self.moves_count:  # of copies torch has the answer from the start
            return False
        samples = self.client.parse(lambda: read_samples(self.client.reply.get("samples", [])))
        return hold(samples, *self._ablated)

    @property
    def source(self) -> str:
        """Path of the candidate's file, as its kernels report it."""
        return self.client.file

    @property
    def moves_count(self) -> bool:
        """Whether moves are work: the task only moves data, or computes only where to and leaves that to kernels."""
        if not computes(self.reference.events):
            return True
        return self.reference.moves_values and not any(map(computes, [*self.traces, *self.other_traces]))

    @property
    def comparable(self) -> Comparable:
        """Events of the reference's and the candidate's forwards; if sizes change, of the one of median size."""
        if self.charged is not None:
            events, traces = self.charged
        elif (number := self._typical) is None:
            events, traces = self.reference.events, self.traces
        else:
            events, traces = self.works[number].events, self.traces[number : number + 1]
        return events, [[with_transposing(event, self.transposing) for event in trace] for trace in traces]

    def own_launches(self, number: int) -> list[OwnLaunch]:
        """Return the candidate's launches in a forward of `comparable`, with the executing process's account of them.

        The list is empty where the device runs kernels itself. Raises what reading an untrusted account raises.
        """
        trace, first = self.comparable[1][number], self._typical or 0
        reports = self.launch_reports if self.charged is None else [self.charged_report]
        explained = explanations([*self.all_launch_reports, self.charged_report])
        return join(trace, reports[first + number], self.source, explained) if reports else []

    @property
    def _typical(self) -> int | None:
        """Return the number of the forward of median size; None if all have the same."""
        if self.charged is not None or not (self.reference.is_sized and self.works):
            return None
        # The lower median by bytes of the reference: neither the smallest draw nor an outlier is timed.
        sizes = [sum(event.bytes for event in work.events) for work in self.works]
        return sorted(range(len(sizes)), key=sizes.__getitem__)[(len(sizes) - 1) // 2]

    @property
    def known_events(self) -> list[TraceEvent]:
        """Events of the latest forward that clocks see, with what the latest forward in any mode showed of them."""
        return latest_known(self.traces[-1], self._latest, self.source)

    def work(self, trace: Sequence[TraceEvent]) -> OwnWork:
        """Return how much of each event of a forward is computed by the candidate's kernels."""
        return own_work(trace, self.source, self.known_events, self.ineffective, self.moves_count)

    def draw(self, number: int) -> Trial:
        """Draw fresh inputs and compute the reference's output."""
        with self.guard():
            return self.reference.trial(self.secret, number, "drawn")

    def offer(self, trial: Trial) -> Offered:
        """Put the inputs into shared memory and poison the outputs; return the part of a request that names both."""
        inputs, _ = place(trial.inputs.tensors, self.layout.inputs_at)
        outputs, _ = place(trial.expected.tensors, self.layout.outputs_at)
        # NaN everywhere: an element that no program writes cannot be right, nor hold an earlier output.
        self.memory.poison(self.layout.inputs_at, self.layout.size)
        self.memory.write(trial.inputs.tensors, inputs)
        return {
            "inputs": trial.inputs.tree,
            "specs": [spec.to_json() for spec in inputs],
            "outputs": [spec.to_json() for spec in outputs],
        }

    def ask(self, request: Time, timeout_s: float) -> Claims:
        """Send a clock's request to the runner and return the answer (raises Verdict)."""
        return self.client.ask(request, timeout_s)

    def parse(self, read: Callable[[], Parsed]) -> Parsed:
        """Read a part of a reply (raises Verdict)."""
        return self.client.parse(read)

    def accept(self, trial: Trial, form: Claims, values: bool) -> None:
        """Check an output outside the trials: its form and, if `values`, every element (raises Verdict)."""
        self.check.form(trial, form)
        if values:
            self.check.values(trial, self._outputs(trial))

    def _inputs(self) -> bytes:
        return self.memory.content(self.layout.inputs_at, self.layout.outputs_at)

    def _outputs(self, trial: Trial) -> list[torch.Tensor]:
        """Copies of the outputs, on the devices of the expected tensors."""
        specs, _ = place(trial.expected.tensors, self.layout.outputs_at)
        pairs = zip(specs, trial.expected.tensors, strict=True)
        return [self.memory.view(spec).to(expected.device, copy=True) for spec, expected in pairs]

    def _run(self, request: RunRequest) -> Claims:
        runner = self.client.runner
        processor_ns = runner.processor_ns()
        try:
            reply = self.client.ask({"run": request}, max(0.001, self.seconds_left))
        finally:
            # Take them after a failed forward too: if the runner lives on, the next forward has seals of its own.
            sealed = runner.seals.take()
        processor_ns = runner.processor_ns() - processor_ns
        self.seconds_left -= runner.used_s
        if request["suppress"] is None:
            events = self.parse(lambda: load_events(reply["events"]))
            # The trace lies in the candidate's process until now; digests of it were taken as it was recorded.
            if self.is_sealed and sealed != seals(events):
                text = "the record of a forward is not what happened in it"
                raise self.client.hacking(HackFlag.EDITED_TRACE, text)  # check: trace-is-sealed
            (self.other_traces if request["mode"] else self.traces).append(events)
            self._latest = events
            # Ablated forwards say nothing about hidden work: their launches skip stores.
            self.entries.append(self.parse(lambda: CpuTime.read(processor_ns, reply["spent"], len(events))))
        return reply
