# SPDX-License-Identifier: Apache-2.0
"""All that judge and runner say to each other, on one page; `channel` carries it as JSON.

A runner, which the zygote has forked (`zygote_messages`), says `Started`, then answers one request after another:
`Load` with `LoadReply`, `Run` with `RunReply`, `Time` with `TimeReply`, `Dry` with `DryReplies` (these two are in
`dry_messages`), `Describe` with `Described`, each of them with `Remarks` as well, or with `Remarks` alone where it
failed. `Exit` has no answer: the runner ends. A compiling process, which is forked in the same way, answers `Compile`
with `Compiled`.

Judge and zygote trust each other. From `Load` on, a candidate runs in the runner's process, so what that says are
claims: the judge holds them as `Claims`, and mypy rejects the use of a value in them that was not read and checked. A
reply that cannot be read counts as forged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from verl_kernel.env.ipc.code_messages import Native as NativeCode
from verl_kernel.env.ipc.code_messages import Translate
from verl_kernel.env.ipc.dry_messages import Dry
from verl_kernel.env.ipc.execution_messages import Report

if TYPE_CHECKING:  # torch, which a compiling process goes without
    from verl_kernel.env.ipc.tensor_facts import Facts

Claims = Mapping[str, object]
"""A reply of a runner, unread."""
Tree = Any
"""Nested lists and tuples whose leaves are scalars or numbers of tensors (`tensors.flatten`)."""
Place = dict[str, Any]
"""Where a tensor lies in shared memory (`TensorSpec.to_json`)."""


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
    describe: list[str] | None
    """Null, or launches are described for a compiler, and an autotuner passes these variants over."""


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


class Mode(TypedDict):
    """How torch stands in a forward; otherwise it records no gradients, and modules are as the candidate left them."""

    gradients: bool
    switched: bool
    """Whether modules are in eval mode instead of train mode, or the other way round."""


class RunRequest(Offered):
    """The inputs of a forward."""

    suppress: LeftOut | None
    inspect: bool
    """Whether the runner looks for functions that were replaced."""
    mode: Mode | None


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


class Describe(TypedDict):
    """Say what was launched."""

    describe: Literal[True]


class Described(TypedDict):
    """Every launch so far that needs a compiled kernel of its own."""

    description: dict[str, Any]
    """`compilation.description.Description`."""


class Compile(TypedDict):
    """Compile one launch (`compilation.description.Unit`); asked of a compiling process."""

    compile: dict[str, Any]


class Compiled(TypedDict):
    """What became of it (`compilation.outcome.Outcome`)."""

    compiled: dict[str, Any]


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
    notes: dict[str, str]  # of tripwire and snapshot against its candidate, by `HackFlag`


Request = Load | Run | Time | Dry | Describe | Compile | Translate | NativeCode | Report | Exit
