# SPDX-License-Identifier: Apache-2.0
"""All that judge, zygote and runner say to each other, on one page; `channel` carries it as JSON.

The zygote says `Ready`, then answers `Fork` with `Forked`, `Reap` with `Reaped`. A forked runner says `Started`, then
answers one request after another: `Load` with `LoadReply`, `Run` with `RunReply`, `Time` with `TimeReply`, each of them
with `Remarks` as well, or with `Remarks` alone where it failed. `Exit` has no answer: the runner ends.

Judge and zygote trust each other. From `Load` on, a candidate runs in the runner's process, so what that says are
claims: the judge holds them as `Claims`, and mypy rejects the use of a value in them that was not read and checked. A
reply that cannot be read counts as forged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from verl_kernel.env.ipc.tensor_facts import Facts

Claims = Mapping[str, object]
"""A reply of a runner, unread."""
Tree = Any
"""Nested lists and tuples whose leaves are scalars or numbers of tensors (`tensors.flatten`)."""
Place = dict[str, Any]
"""Where a tensor lies in shared memory (`TensorSpec.to_json`)."""


class Ready(TypedDict):
    """The zygote's first words; the values are versions."""

    ready: dict[str, str]


class ForkRequest(TypedDict):
    """What a runner has to know of itself; its ends of socket, shared memory and pipes travel along."""

    scratch: str
    memory_bytes: int
    memory_mb: int
    float32: str


class Fork(TypedDict):
    """Make a runner."""

    fork: ForkRequest


class Forked(TypedDict):
    """The runner's process id."""

    pid: int


class Reap(TypedDict):
    """Collect the dead runner with this process id."""

    reap: int


class Reaped(TypedDict):
    """Its exit status, or minus its signal, and its largest memory beyond what it began with."""

    status: int
    grown_mb: int


class _Started(TypedDict):
    isolation: Sequence[str]


class Started(_Started, total=False):
    """A runner's first words, before there is a candidate: what confines it, and why it cannot serve."""

    unfit: str


class LoadRequest(TypedDict):
    """The candidate's class, and what its model is made from."""

    entry: str
    seed: int
    init: Tree
    specs: list[Place]
    state: dict[str, int]
    """Number, in `specs`, of each tensor of the reference's state."""
    constants: dict[str, tuple[float, bool]]
    """`weights.Constants`."""


class Load(TypedDict):
    """Import the candidate's file and build its model."""

    load: LoadRequest


class LoadReply(TypedDict):
    """How the model got the reference's weights (`weights.hand_over`)."""

    weights: str


class Offered(TypedDict):
    """Inputs in shared memory and the places of the outputs."""

    inputs: Tree
    specs: list[Place]
    outputs: list[Place]


class LeftOut(TypedDict, total=False):
    """What launches leave out: arguments of `DeviceBackend.suppress_launches`."""

    kept: list[str]
    only: list[int]


class RunRequest(Offered):
    """The inputs of a forward."""

    suppress: LeftOut | None
    inspect: bool
    """Whether the runner looks for functions that were replaced."""


class Run(TypedDict):
    """Do one forward."""

    run: RunRequest


class Form(TypedDict):
    """What an output is: its structure (null where it is no output) and facts of its tensors."""

    output: Tree | None
    tensors: list[Facts]


class Spent(TypedDict):
    """Nanoseconds of processor time that launches and torch ops took, and the runner's own copying."""

    device: int
    own: int


class RunReply(Form):
    """What happened in a forward."""

    events: list[dict[str, object]]
    """`trace.dump_events`."""
    spent: Spent


class OfferStep(Offered):
    """Put inputs on the device, where they wait for their call."""

    step: Literal["offer"]


class CallStep(TypedDict):
    """Do forwards on the inputs offered, timed by a protocol of the stopwatch."""

    step: Literal["call"]
    protocol: str
    count: int


class NullStep(TypedDict):
    """The same without the forwards."""

    step: Literal["null"]
    protocol: str
    count: int


class OutputStep(TypedDict):
    """Show an output of the last call in shared memory."""

    step: Literal["output"]
    number: int


class ProfileStep(TypedDict):
    """Do one forward under the profiler."""

    step: Literal["profile"]


TimeStep = OfferStep | CallStep | NullStep | OutputStep | ProfileStep


class Time(TypedDict):
    """One step of a measurement on a GPU (`clocks.cuda`)."""

    time: TimeStep


class TimeReply(TypedDict, total=False):
    """The first two answer a call and a null step, the other two a profile; to an offer and an output it is empty."""

    inner_ms: float
    forms: list[Form]
    kernels: dict[str, list[float]]
    """Count and milliseconds by name."""
    events: list[dict[str, object]]


class Exit(TypedDict):
    """End."""

    exit: Literal[True]


class Failure(TypedDict):
    """How a request failed: one of the statuses in `EvalStatus` that are a runner's to report, and an exception."""

    status: str
    type: str
    message: str
    traceback_tail: str


class Remarks(TypedDict, total=False):
    """Part of any answer."""

    failure: Failure
    notes: dict[str, str]
    """What the runner's tripwire and snapshot have noted against its candidate, by `HackFlag`."""


Request = Load | Run | Time | Exit
