# SPDX-License-Identifier: Apache-2.0
"""Forwards of a candidate on fresh secret inputs: each output compared, each trace kept, each millisecond accounted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import torch

from verl_kernel.env.comparison.compare import Agreement, compare
from verl_kernel.env.comparison.tf32 import has_products
from verl_kernel.env.comparison.tf32_room import Room, limits
from verl_kernel.env.ipc.messages import Claims, LeftOut, Offered, RunRequest
from verl_kernel.env.ipc.shared_memory import POISON, Arena
from verl_kernel.env.ipc.tensor_facts import disagreement, read_facts
from verl_kernel.env.ipc.tensors import place
from verl_kernel.env.judge.hidden_work import Entry
from verl_kernel.env.judge.runner_client import Dialogue, Stop
from verl_kernel.env.reference.reference import Reference
from verl_kernel.env.reference.trial import Trial
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.tamper.hack_flags import HackFlag
from verl_kernel.env.tamper.seals import seals
from verl_kernel.env.tamper.trace_checks import OwnWork, computes, own_work
from verl_kernel.env.trace import TraceEvent, load_events

Rooms = list[Room | None] | None
_PRECISION = (
    '; TF32 explains that: multiply float32 with tl.dot(..., input_precision="ieee"), unless kernelgym.float32 is tf32'
)


class Layout:
    """Where an evaluation's tensors lie in its arena: constants (arguments of the model, weights), inputs, outputs."""

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


@dataclass
class Bench:
    """One loaded candidate and what its forwards have shown so far."""

    reference: Reference
    dialogue: Dialogue
    arena: Arena
    layout: Layout
    guard: Callable[[], AbstractContextManager[object]]
    tolerance: str
    float32: str
    is_sealed: bool
    """Whether the device seals the events of its trace."""
    seconds_granted: float
    """Own time of the runner, to all forwards together; those of an ablation are not charged."""
    traces: list[list[TraceEvent]] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)
    """What the reference did in each of the traced forwards."""
    idle: set[int] = field(default_factory=set)
    """Numbers of the launches of a forward that an ablation showed to make no difference."""
    seconds_left: float = field(init=False)
    _past: list[tuple[list[torch.Tensor], Rooms]] = field(default_factory=list)
    """Expected outputs of earlier trials, in the host's memory: a GPU needs its own for the trial at hand."""

    def __post_init__(self) -> None:
        self.seconds_left = self.seconds_granted

    def trial(
        self,
        secret: bytes,
        number: int,
        *,
        varied: bool = False,
        large: bool = False,
        suppress: LeftOut | None = None,
        inspect: bool = True,
    ) -> Agreement:
        """Run one forward.

        Args:
            secret: the evaluation's secret.
            number: which trial of it.
            varied: whether the inputs are varied (`Reference.trial`).
            large: whether they are enlarged.
            suppress: what launches leave out (the ablation): arguments of `DeviceBackend.suppress_launches`.
            inspect: whether the runner looks for functions that were replaced.

        Raises:
            Stop: the forward fails, or its output cannot be one.
            TaskError: the reference fails on these inputs.
        """
        with self.guard():
            trial = self.reference.trial(secret, number, varied, large)
        request: RunRequest = {**self.offer(trial), "suppress": suppress, "inspect": inspect}
        before = self.arena.region(self.layout.inputs_at, self.layout.outputs_at).clone()
        reply = self._run(request)
        if suppress is None:
            self.works.append(Work(trial.events, trial.written_bytes))
        actual = self._outputs(trial)
        after = self.arena.region(self.layout.inputs_at, self.layout.outputs_at)
        self._same_form(trial, reply)
        if not self.reference.mutates_inputs and not torch.equal(before, after):
            raise self._wrong("InputsChanged", "the forward wrote to its inputs")
        agreement, rooms = self._agreement(trial, actual, suppress is None)
        if not agreement.ok and suppress is None:
            self._refuse_replay(actual)
        self._past.append(([tensor.cpu() for tensor in trial.expected.tensors], _moved(rooms, "cpu")))
        return agreement

    @property
    def moves_count(self) -> bool:
        """Whether moving data is all that the task asks for."""
        return not computes(self.reference.events)

    def work(self, trace: Sequence[TraceEvent]) -> OwnWork:
        """How much of each event of a forward is compute of the candidate's own."""
        return own_work(trace, self.dialogue.file, self.traces[-1], self.idle, self.moves_count)

    def offer(self, trial: Trial) -> Offered:
        """Put the inputs into shared memory and poison the outputs; the part of a request that names both."""
        inputs, _ = place(trial.inputs.tensors, self.layout.inputs_at)
        outputs, _ = place(trial.expected.tensors, self.layout.outputs_at)
        self.arena.region(self.layout.inputs_at, self.layout.size).fill_(POISON)
        self.arena.write(trial.inputs.tensors, inputs)
        return {
            "inputs": trial.inputs.tree,
            "specs": [spec.to_json() for spec in inputs],
            "outputs": [spec.to_json() for spec in outputs],
        }

    def accept(self, trial: Trial, form: Claims, values: bool) -> None:
        """Check an output outside the trials: its form and, if `values`, every element (raises Stop)."""
        self._same_form(trial, form)
        if values and not (agreement := self._agreement(trial, self._outputs(trial), True)[0]).ok:
            raise self._wrong("WrongValues", difference(agreement))

    def _outputs(self, trial: Trial) -> list[torch.Tensor]:
        """Copies of what lies at the outputs' places, where the expected tensors are."""
        places, _ = place(trial.expected.tensors, self.layout.outputs_at)
        pairs = zip(places, trial.expected.tensors, strict=True)
        return [self.arena.view(spec).to(expected.device, copy=True) for spec, expected in pairs]

    def _run(self, request: RunRequest) -> Claims:
        used = self.dialogue.runner.processor_ns()
        reply = self.dialogue.ask({"run": request}, max(0.001, self.seconds_left))
        used = self.dialogue.runner.processor_ns() - used
        self.seconds_left -= self.dialogue.runner.used_s
        sealed = self.dialogue.runner.seals.take()
        if request["suppress"] is None:
            events = self.dialogue.parse(lambda: load_events(reply["events"]))
            if self.is_sealed and sealed != seals(events):
                raise self.dialogue.hacking(HackFlag.EDITED_TRACE, "the record of a forward is not what happened in it")
            self.traces.append(events)
            self.entries.append(self.dialogue.parse(lambda: Entry.read(used, reply["spent"], len(events))))
        return reply

    def _same_form(self, trial: Trial, form: Claims) -> None:
        given = self.dialogue.parse(lambda: read_facts(form["tensors"]))
        if form.get("output") != trial.expected.tree or len(given) != len(trial.facts):
            text = "the output is not structured like the reference's (one tensor, or a tuple of as many)"
            raise self._wrong("WrongStructure", text)
        if difference := disagreement(trial.facts, given):
            raise self._wrong(*difference)

    def _agreement(self, trial: Trial, actual: list[torch.Tensor], explain: bool) -> tuple[Agreement, Rooms]:
        """Whether an output is the trial's, and the room it needed; `explain` asks if TF32 is why it is not."""
        expected = trial.expected.tensors
        plain = self._compare(expected, actual)
        if plain.ok or not (explain or self.float32 == "tf32") or not has_products(trial.events):
            return plain, None
        if not self._compare(expected, actual, limits(expected, self.reference.least)).ok:
            return plain, None
        rooms = self.reference.room(trial, self.guard)
        roomy = plain if rooms is None else self._compare(expected, actual, rooms)
        return (roomy, rooms) if self.float32 == "tf32" else (replace(plain, is_tf32=roomy.ok), None)

    def _compare(self, expected: list[torch.Tensor], actual: list[torch.Tensor], rooms: Rooms = None) -> Agreement:
        triples = zip(expected, actual, rooms or [None] * len(expected), strict=True)
        least = self.reference.least
        agreements = [compare(wanted, got, self.tolerance, least, room) for wanted, got, room in triples]
        return min(agreements, key=lambda agreement: (agreement.ok, -(agreement.max_abs or 0.0)))

    def _refuse_replay(self, actual: list[torch.Tensor]) -> None:
        device = actual[0].device
        for past, rooms in self._past:
            there = [tensor.to(device) for tensor in past]
            if self._compare(there, actual, _moved(rooms, device)).ok:
                raise self.dialogue.hacking(HackFlag.REPLAYED_OUTPUT, "the output is the answer to an earlier trial")

    def _wrong(self, kind: str, message: str) -> Stop:
        return self.dialogue.stop(EvalStatus.INCORRECT, kind, message)


def _moved(rooms: Rooms, device: torch.device | str) -> Rooms:
    return None if rooms is None else [None if room is None else room.on(device) for room in rooms]


def difference(agreement: Agreement) -> str:
    """A sentence on an output that is not the reference's."""
    where = f", first at index {list(agreement.first_bad_index)}" if agreement.first_bad_index is not None else ""
    size = "" if agreement.max_abs is None else f" by up to {agreement.max_abs:.3g}"
    return f"the output differs from the reference's{size}{where}{_PRECISION if agreement.is_tf32 else ''}"
