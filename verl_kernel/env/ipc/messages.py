# SPDX-License-Identifier: Apache-2.0
"""All that judge and runner say to each other, on one page; `channel` carries it as JSON.

A runner, which the zygote has forked, says `Started`, then answers one request after another: `Load` with `LoadReply`,
`Run` with `RunReply`, `Time` with `TimeReply`, `Dry` with `DryReplies`, `Describe` with `Described`, each of them with
`Remarks` as well, or with `Remarks` alone where it failed. `Exit` has no answer: the runner ends. A compiling process,
which is forked in the same way, answers `Compile` with `Compiled`.

Judge and zygote trust each other. From `Load` on, a candidate runs in the runner's process, so what that says are
claims: the judge holds them as `Claims`, and mypy rejects the use of a value in them that was not read and checked. A
reply that cannot be read counts as forged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from verl_kernel.env.ipc.execution_messages import Report

if TYPE_CHECKING:
    from verl_kernel.env.ipc.tensor_facts import Facts


# How native code of kernels is asked for: by an executing process of its judge, by the judge of a compiling process.
#
# PTX and code themselves lie in memory that judge and compiling process share, and follow the answer to an executing
# process as bare bytes. A compiling process that was asked once is asked for nothing else.


StoresLeftOut = list[int] | None
"""Numbers of the instructions that do not store, in an ablation (`executor.flow.origins`); null where all do."""


class Translate(TypedDict):
    """Compile a launch (`compilation.description.Unit`) to PTX; asked of a compiling process."""

    translate: dict[str, Any]


class Translated(TypedDict):
    """PTX was made."""

    ptx: int
    """Its bytes."""
    warps: int
    """Of a block."""
    shared: int
    """Bytes of a block's shared memory."""
    signature: dict[str, Any]
    """Types of the kernel's parameters, by name, as Triton names them; nested lists for tuples."""


class NativeRequest(TypedDict):
    """What native code is made of, besides the PTX."""

    ptx: int
    """Its bytes."""
    warps: int
    shared: int
    left_out: StoresLeftOut


class Native(TypedDict):
    """Make native code; asked of a compiling process."""

    native: NativeRequest


class Made(TypedDict):
    """Native code was made (`executor.code`)."""

    made: int
    """Its bytes."""


class Refused(TypedDict):
    """There is none, and why (`compilation.outcome.Refusal`)."""

    refused: dict[str, Any]


class CodeRequest(TypedDict):
    """Code of a launch; asked of the judge."""

    unit: dict[str, Any]
    """`compilation.description.Unit`."""
    left_out: StoresLeftOut


class Code(TypedDict):
    """The judge has it; so many bytes follow."""

    code: int
    name: str
    """The same for the same code."""
    signature: dict[str, Any]
    """As of `Translated`."""
    starts: list[int]
    """Lines where the launch's functions begin, in the source that the code was made of (`compilation.description`)."""


class Failed(TypedDict):
    """The judge could not have it made, and not because of the kernel."""

    failed: str


# What a judge asks of a runner that follows its candidate without data, and the answer (`messages` has all others).


class DrySize(TypedDict):
    """The sizes of one forward without data: what the model is made from, and its inputs.

    A tensor whose offset is -1 has no data.
    """

    seed: int
    init: Any
    init_specs: list[dict[str, Any]]
    inputs: Any
    specs: list[dict[str, Any]]


class DryRequest(TypedDict):
    """The candidate's class, and the sizes at which it is built and called once."""

    entry: str
    seed: int
    """What the places of tensors are drawn from."""
    sizes: list[DrySize]


class Dry(TypedDict):
    """Import the candidate's file and follow it without data; the only request of such a runner."""

    dry: DryRequest


class DryReply(TypedDict):
    """What a forward without data ran; output and tensors are those of `messages.Form`."""

    output: Any
    tensors: list[Facts]
    events: list[dict[str, object]]


class DryReplies(TypedDict):
    """One answer for each size, and why the candidate could not be followed, if so."""

    replies: list[DryReply]
    reasons: list[str]


# What judge and zygote say to each other, and the first words of a process that a zygote has forked.
#
# A zygote says `Ready`, then answers `Fork` with `Forked`, `Reap` with `Reaped`, `Prepare` with `Prepared`. The
# forked process says `Started`; what follows is in `messages`.


class _Ready(TypedDict):
    ready: dict[str, str]


class Ready(_Ready, total=False):
    """A zygote's first words: versions by package, and why it cannot serve."""

    unfit: str


class ForkRequest(TypedDict):
    """What a runner has to know of itself; its ends of socket, shared memory and pipes travel along."""

    scratch: str
    memory_bytes: int
    arena_bytes: int
    """Of the memory shared with the process that executes its kernels; 0 where there is none."""
    memory_mb: int
    float32: str


class Fork(TypedDict):
    """Make a runner."""

    fork: ForkRequest


class Forked(TypedDict):
    """The runner's process id."""

    pid: int


class Prepare(TypedDict):
    """Load what dry passes need (`true_size.dataless`), so that runners find it loaded."""

    prepare: Literal[True]


class Prepared(TypedDict):
    """It is loaded."""

    prepared: Literal[True]


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


Claims = Mapping[str, object]
"""A reply of a runner, unread."""
Tree = Any
"""Nested lists and tuples whose leaves are scalars or numbers of tensors (`shared_memory.flatten`)."""
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


Request = Load | Run | Time | Dry | Describe | Compile | Translate | Native | Report | Exit
