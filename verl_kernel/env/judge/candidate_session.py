# SPDX-License-Identifier: Apache-2.0
"""A loaded candidate: its forwards on fresh secret inputs, each trace kept, each millisecond accounted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch

from verl_kernel.env.clocks.base import Parsed
from verl_kernel.env.comparison.compare import Agreement
from verl_kernel.env.ipc.messages import Claims, LeftOut, Mode, Offered, RunRequest, Time
from verl_kernel.env.ipc.shared_memory import POISON, SharedMemory, place
from verl_kernel.env.judge.output_check import OutputCheck
from verl_kernel.env.judge.runner_client import RunnerClient
from verl_kernel.env.machine.roofline import Demand
from verl_kernel.env.reference.kinds import Kind
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.reference.trial import Trial
from verl_kernel.env.result import MemoryFinding
from verl_kernel.env.tamper.hack_flags import HackFlag
from verl_kernel.env.tamper.seals import seals
from verl_kernel.env.tamper.trace_checks import OwnWork, computes, own_work
from verl_kernel.env.trace import TraceEvent, load_events
from verl_kernel.env.weights import constant_value

# Finds hidden work: processor time of a forward that its launches and torch ops do not explain.
#
# The simulated clock charges for counted work only, so a forward that computes in Python would be free. The judge
# reads the runner's processor time from the kernel, and the runner reports how much of it went into launches, ops and
# its own copying. An honest forward needs a few milliseconds beyond that for its launch code.


ALLOWED_MS = 10.0
"""Milliseconds of a forward that need no explanation."""
ALLOWED_SHARE = 0.2
"""Unexplained time that is granted on top, as a share of the explained time."""
ALLOWED_MS_PER_EVENT = 0.1
"""Granted for the host's part of each launch or op."""
FIRST_MS = 200.0
"""Granted to a forward that is the evaluation's only one: a first forward imports, parses kernels and autotunes."""


@dataclass(frozen=True)
class CpuTime:
    """One forward.

    Raises:
        ValueError: the runner's numbers are no times.
    """

    total_ms: float
    """Processor time of the runner from the request to the answer, as the judge measured it."""
    explained_ms: float
    """The part of it that the runner puts down to launches, torch ops and its own copying."""
    events: int

    @classmethod
    def read(cls, total_ns: int, spent: Any, events: int) -> CpuTime:
        """Combine the judge's measurement with the runner's claim."""
        if not isinstance(spent, dict) or not all(type(value) is int and value >= 0 for value in spent.values()):
            raise ValueError("the processor times of an answer must be integers of at least 0")
        return cls(total_ns / 1e6, sum(spent.values()) / 1e6, events)

    @property
    def hidden_ms(self) -> float:
        """Unexplained time beyond what is granted; negative where there is none."""
        granted = ALLOWED_MS + ALLOWED_SHARE * self.explained_ms + ALLOWED_MS_PER_EVENT * self.events
        return self.total_ms - self.explained_ms - granted


def hidden_work(entries: list[CpuTime]) -> CpuTime | None:
    """The typical forward of an evaluation if it hides work, else None.

    The lower median: the first forward may import and tune, and the clock takes the median too. Where it is the only
    one, it is granted `FIRST_MS`.
    """
    if not entries:
        return None
    ordered = sorted(entries, key=lambda entry: entry.hidden_ms)
    typical = ordered[(len(ordered) - 1) // 2]
    return typical if typical.hidden_ms > (FIRST_MS if len(entries) == 1 else 0) else None


Comparable = tuple[Sequence[TraceEvent], Sequence[Sequence[TraceEvent]]]
"""Events of the reference's forward, and of the candidate's forwards on inputs of that size."""


class MemoryLayout:
    """Where an evaluation's tensors lie in its memory: constants (arguments of the model, weights), inputs, outputs."""

    def __init__(self, reference: Reference) -> None:
        self.constants = [*reference.init.tensors, *reference.state.values()]
        self.specs, self.inputs_at = place(self.constants)
        self.outputs_at = self.inputs_at + reference.input_bytes
        self.size = self.outputs_at + reference.output_bytes


@dataclass(frozen=True)
class Work:
    """The reference's part of a trial: what it ran and how much it wrote."""

    events: list[TraceEvent]
    written_bytes: int


@dataclass(kw_only=True)
class CandidateSession:
    """One loaded candidate and what its forwards have shown so far; a clock sees it as `clocks.base.Session`."""

    reference: Reference
    client: RunnerClient
    memory: SharedMemory
    layout: MemoryLayout
    guard: Callable[[], AbstractContextManager[object]]
    """Around everything the reference does."""
    check: OutputCheck
    is_sealed: bool
    """Whether the device seals the events of its trace."""
    seconds_granted: float
    """Own time of the runner, to all forwards together; those of an ablation are not charged."""
    secret: bytes = b""
    """What inputs are drawn from; known once the candidate is loaded."""
    traces: list[list[TraceEvent]] = field(default_factory=list)
    entries: list[CpuTime] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)
    """What the reference did in each of these forwards."""
    other_traces: list[list[TraceEvent]] = field(default_factory=list)
    """Of forwards in another mode than the one that clocks see; `other_works` belongs to them."""
    other_works: list[Work] = field(default_factory=list)
    idle: set[int] = field(default_factory=set)
    """Numbers of the launches of a forward that an ablation showed to make no difference."""
    blocks_per_sm: dict[str, int] = field(default_factory=dict)
    """By kernel, blocks that an SM of the simulated GPU holds at a time, where a compiler has told."""
    memory_findings: tuple[MemoryFinding, ...] | None = None
    """What the memory checks have found so far; None where none was asked for."""
    charged: Comparable | None = None
    """Events at the true size, where those of the trials are not what a clock should see."""
    is_telling: bool = True
    """Whether the latest outputs hold floating numbers that differ: these are not right by chance."""
    demand: Demand | None = field(init=False)
    """What a forward of the size that a clock sees cannot do without; None where sizes change."""
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
            number: which trial of the secret.
            kind: of its inputs (`Reference.trial`).
            suppress: what launches leave out, in an ablation.
            inspect: whether the runner looks for functions that were replaced.
            mode: of torch and of the candidate's modules, if another one than usual.

        Raises:
            Verdict: the forward fails, or its output cannot be one.
            TaskError: the reference fails on these inputs.
        """
        with self.guard():
            trial = self.reference.trial(self.secret, number, kind)
        request: RunRequest = {**self.offer(trial), "suppress": suppress, "inspect": inspect, "mode": mode}
        before = self._inputs().clone()
        form = self._run(request)
        if suppress is None:
            (self.other_works if mode else self.works).append(Work(trial.events, trial.written_bytes))
        expected = [tensor for tensor in trial.expected.tensors if tensor.is_floating_point() and tensor.numel()]
        self.is_telling = any(constant_value(tensor) is None for tensor in expected)
        actual, after = self._outputs(trial), self._inputs()
        self.check.form(trial, form)
        if not self.reference.mutates_inputs and not torch.equal(before, after):
            raise self.check.wrong("InputsChanged", "the forward wrote to its inputs")
        return self.check.trial(trial, actual, ablated=suppress is not None)

    @property
    def source(self) -> str:
        """The candidate's file, as its kernels report it."""
        return self.client.file

    @property
    def moves_count(self) -> bool:
        """Whether moving data is all that the task asks for."""
        return not computes(self.reference.events)

    @property
    def comparable(self) -> Comparable:
        """Events of the reference's forward and of the candidate's: of one of median size, where sizes change."""
        if self.charged is not None:
            return self.charged
        if not (self.reference.is_sized and self.works):
            return self.reference.events, self.traces
        sizes = [sum(event.bytes for event in work.events) for work in self.works]
        typical = sorted(range(len(sizes)), key=sizes.__getitem__)[(len(sizes) - 1) // 2]
        return self.works[typical].events, self.traces[typical : typical + 1]

    def work(self, trace: Sequence[TraceEvent]) -> OwnWork:
        """How much of each event of a forward is compute of the candidate's own."""
        return own_work(trace, self.source, self.traces[-1], self.idle, self.moves_count)

    def draw(self, number: int) -> Trial:
        """Fresh inputs and what the reference makes of them."""
        with self.guard():
            return self.reference.trial(self.secret, number, "drawn")

    def offer(self, trial: Trial) -> Offered:
        """Put the inputs into shared memory and poison the outputs; the part of a request that names both."""
        inputs, _ = place(trial.inputs.tensors, self.layout.inputs_at)
        outputs, _ = place(trial.expected.tensors, self.layout.outputs_at)
        self.memory.region(self.layout.inputs_at, self.layout.size).fill_(POISON)
        self.memory.write(trial.inputs.tensors, inputs)
        return {
            "inputs": trial.inputs.tree,
            "specs": [spec.to_json() for spec in inputs],
            "outputs": [spec.to_json() for spec in outputs],
        }

    def ask(self, request: Time, timeout_s: float) -> Claims:
        """One request of a clock to the runner (raises Verdict)."""
        return self.client.ask(request, timeout_s)

    def parse(self, read: Callable[[], Parsed]) -> Parsed:
        """Read a part of a reply (raises Verdict)."""
        return self.client.parse(read)

    def accept(self, trial: Trial, form: Claims, values: bool) -> None:
        """Check an output outside the trials: its form and, if `values`, every element (raises Verdict)."""
        self.check.form(trial, form)
        if values:
            self.check.values(trial, self._outputs(trial))

    def _inputs(self) -> torch.Tensor:
        return self.memory.region(self.layout.inputs_at, self.layout.outputs_at)

    def _outputs(self, trial: Trial) -> list[torch.Tensor]:
        """Copies of what lies at the outputs' places, where the expected tensors are."""
        places, _ = place(trial.expected.tensors, self.layout.outputs_at)
        pairs = zip(places, trial.expected.tensors, strict=True)
        return [self.memory.view(spec).to(expected.device, copy=True) for spec, expected in pairs]

    def _run(self, request: RunRequest) -> Claims:
        runner = self.client.runner
        used = runner.processor_ns()
        try:
            reply = self.client.ask({"run": request}, max(0.001, self.seconds_left))
        finally:
            # Also after a forward that failed: the runner may live on, and the next forward has seals of its own.
            sealed = runner.seals.take()
        used = runner.processor_ns() - used
        self.seconds_left -= runner.used_s
        if request["suppress"] is None:
            events = self.parse(lambda: load_events(reply["events"]))
            if self.is_sealed and sealed != seals(events):
                text = "the record of a forward is not what happened in it"
                raise self.client.hacking(HackFlag.EDITED_TRACE, text)
            (self.other_traces if request["mode"] else self.traces).append(events)
            self.entries.append(self.parse(lambda: CpuTime.read(used, reply["spent"], len(events))))
        return reply
