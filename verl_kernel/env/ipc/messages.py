# SPDX-License-Identifier: Apache-2.0
"""The messages between a judge and its zygote, runner and compiling process; `channel` carries them as JSON.

A runner is forked by the zygote, sends `Started` and then answers requests one by one: `Load` with `LoadReply`, `Run`
with `RunReply`, `Time` with `TimeReply`, `Dry` with `DryReplies`, `Describe` with `Described`. Each answer also has the
fields of `Remarks`; the answer to a failed request has only these. `Exit` has no answer: the runner ends. A compiling
process, forked in the same way, answers `Compile` with `Compiled`.

Judge and zygote trust each other. From `Load` on, the runner's process executes the candidate, so its answers are only
claims: the judge types them as `Claims`, and mypy rejects any use of a value in them that has not been checked. An
answer that the judge cannot read counts as forged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from verl_kernel.env.ipc.execution_messages import Report

if TYPE_CHECKING:
    from verl_kernel.env.ipc.tensor_facts import Facts


# Requests for native code of kernels: from an executing process to its judge, from the judge to a compiling process.
#
# PTX and native code themselves do not travel in messages. Between judge and compiling process they lie in shared
# memory; to an executing process the code follows the answer as raw bytes. A compiling process serves one request.


StoresLeftOut = list[int] | None
"""Numbers of the store instructions that an ablation leaves out (`emulator.flow.origins`); null for none."""


class Translate(TypedDict):
    """Compile a launch (`compilation.description.Unit`) to PTX; sent to a compiling process."""

    translate: dict[str, Any]


class Translated(TypedDict):
    """The PTX in shared memory, in answer to `Translate`."""

    ptx: int
    """Length of the PTX in bytes."""
    warps: int
    """Warps per block."""
    shared: int
    """Shared memory per block, in bytes."""
    signature: dict[str, Any]
    """Types of the kernel's parameters, by name, as Triton names them; nested lists for tuples."""


class NativeRequest(TypedDict):
    """The parameters of native code, besides the PTX."""

    ptx: int
    """Length of the PTX in bytes."""
    warps: int
    """Warps per block."""
    shared: int
    """Shared memory per block, in bytes."""
    left_out: StoresLeftOut


class Native(TypedDict):
    """Compile PTX to native code; sent to a compiling process."""

    native: NativeRequest


class Made(TypedDict):
    """The native code in shared memory (`emulator.code`), in answer to `Native`."""

    made: int
    """Length of the code in bytes."""


class Refused(TypedDict):
    """The compiler's refusal (`compilation.outcome.Refusal`)."""

    refused: dict[str, Any]


class CodeRequest(TypedDict):
    """Send the native code of a launch; sent to the judge by an executing process."""

    unit: dict[str, Any]
    """Fields of `compilation.description.Unit`."""
    left_out: StoresLeftOut


class Code(TypedDict):
    """The judge's answer to `CodeRequest`; `code` raw bytes follow it."""

    code: int
    """Length of the code in bytes."""
    name: str
    """Identifies the code: equal code has the same name."""
    signature: dict[str, Any]
    """As in `Translated`."""
    starts: list[int]
    """Lines at which the launch's functions begin, in the source that was compiled (`compilation.description`)."""


class Failed(TypedDict):
    """The compilation failed for a reason that is not the kernel's fault."""

    failed: str


class DrySize(TypedDict):
    """Constructor arguments and inputs of one forward without data.

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
    """Seed from which the addresses of tensors are drawn."""
    sizes: list[DrySize]


class Dry(TypedDict):
    """Import the candidate's file and do its dry passes; such a runner gets no other request."""

    dry: DryRequest


class DryReply(TypedDict):
    """The events of one dry pass; output and tensors are those of `Form`."""

    output: Any
    tensors: list[Facts]
    events: list[dict[str, object]]


class DryReplies(TypedDict):
    """One answer for each size; `reasons` say why a dry pass was not possible."""

    replies: list[DryReply]
    reasons: list[str]


# Messages between judge and zygote, and the first message of a process that a zygote has forked.
#
# A zygote sends `Ready`, then answers `Fork` with `Forked`, `Reap` with `Reaped` and `Prepare` with `Prepared`. The
# forked process first sends `Started`.


class _Ready(TypedDict):
    ready: dict[str, str]


class Ready(_Ready, total=False):
    """A zygote's first message: versions by package, and in `unfit` the reason why it cannot serve, if any."""

    unfit: str


class ForkRequest(TypedDict):
    """The settings of a runner; its ends of socket, shared memory and pipes travel with the message."""

    scratch: str
    """Path of its scratch directory."""
    memory_bytes: int
    """Size of the memory that it shares with the judge."""
    arena_bytes: int
    """Size of the memory that it shares with the process that executes its kernels; 0 if there is no such process."""
    memory_mb: int
    """Its memory limit."""
    float32: str
    """Precision of float32 products (`tf32.use`)."""


class Fork(TypedDict):
    """Fork a runner."""

    fork: ForkRequest


class Forked(TypedDict):
    """The runner's process id."""

    pid: int


class Prepare(TypedDict):
    """Load what dry passes need (`true_size.dataless`), so that runners forked later inherit it."""

    prepare: Literal[True]


class Prepared(TypedDict):
    """The answer to `Prepare`, once everything is loaded."""

    prepared: Literal[True]


class Reap(TypedDict):
    """Collect the dead runner with this process id."""

    reap: int


class Reaped(TypedDict):
    """The runner's exit status, or minus its signal, and how far its memory grew beyond that at the fork."""

    status: int
    grown_mb: int


class _Started(TypedDict):
    isolation: Sequence[str]


class Started(_Started, total=False):
    """A runner's first message, sent before it loads a candidate.

    It holds the mechanisms of isolation in force, and in `unfit` the reason why the runner cannot serve, if any.
    """

    unfit: str


Claims = Mapping[str, object]
"""A runner's answer that has not been checked yet."""
Tree = Any
"""Nested lists and tuples whose leaves are scalars or numbers of tensors (`shared_memory.flatten`)."""
Place = dict[str, Any]
"""A tensor's place in shared memory (`TensorSpec.to_json`)."""


class LoadRequest(TypedDict):
    """The candidate's class, the arguments of its constructor, and the reference's weights."""

    entry: str
    seed: int
    init: Tree
    specs: list[Place]
    state: dict[str, int]
    """Number, in `specs`, of each tensor of the reference's state."""
    constants: dict[str, tuple[float, bool]]
    """The state's constants (`weights.Constants`)."""
    structured: list[str]
    """Names of parameters that started with a structure and were changed too."""
    describe: list[str] | None
    """Variants that an autotuner must skip while launches are described for a compiler; null: describe nothing."""


class Load(TypedDict):
    """Import the candidate's file and build its model."""

    load: LoadRequest


class LoadReply(TypedDict):
    """The way in which the model got the reference's weights (`weights.hand_over`)."""

    weights: str


class Offered(TypedDict):
    """Inputs in shared memory and the places of the outputs."""

    inputs: Tree
    specs: list[Place]
    outputs: list[Place]


class LeftOut(TypedDict, total=False):
    """What an ablation suppresses: the arguments of `DeviceBackend.suppress_launches`."""

    kept: list[str]
    only: list[int]


class Mode(TypedDict):
    """The mode of torch in a forward; by default no gradients are recorded and modules keep their mode."""

    gradients: bool
    """Whether gradients are recorded."""
    switched: bool
    """Whether modules are switched from train mode to eval mode, or from eval mode to train mode."""


class RunRequest(Offered):
    """The inputs of a forward."""

    suppress: LeftOut | None
    inspect: bool
    """Whether the runner looks for functions that the candidate has replaced."""
    mode: Mode | None
    sample_seed: int | None
    """Draws the elements of results of torch's ops that the runner samples (`op_samples`), in an ablation."""


class Run(TypedDict):
    """Do one forward."""

    run: RunRequest


class Form(TypedDict):
    """An output's structure (null if it is no valid output) and the facts of its tensors."""

    output: Tree | None
    tensors: list[Facts]


class Spent(TypedDict):
    """Processor time in nanoseconds: of launches and torch ops (`device`), and of the runner's copying (`own`)."""

    device: int
    own: int


class RunReply(Form):
    """The output and the events of a forward."""

    events: list[dict[str, object]]
    """The trace (`trace.dump_events`)."""
    spent: Spent


class OfferStep(Offered):
    """Copy inputs to the device, for a later call."""

    step: Literal["offer"]


class CallStep(TypedDict):
    """Run `count` forwards on the offered inputs, timed by a protocol of the stopwatch."""

    step: Literal["call"]
    protocol: str
    count: int


class NullStep(TypedDict):
    """Do the same as `CallStep` without any forward: measures the overhead."""

    step: Literal["null"]
    protocol: str
    count: int


class OutputStep(TypedDict):
    """Copy one output of the latest call to shared memory."""

    step: Literal["output"]
    number: int


class ProfileStep(TypedDict):
    """Run one forward under the profiler."""

    step: Literal["profile"]


TimeStep = OfferStep | CallStep | NullStep | OutputStep | ProfileStep


class Time(TypedDict):
    """One step of a measurement on a GPU (`clocks.cuda`)."""

    time: TimeStep


class TimeReply(TypedDict, total=False):
    """The answer to a step of a measurement.

    A call and a null step give `inner_ms` and `forms`, a profile gives `kernels` and `events`; the answer to an offer
    and to an output is empty.
    """

    inner_ms: float
    forms: list[Form]
    kernels: dict[str, list[float]]
    """Count and milliseconds by kernel name."""
    events: list[dict[str, object]]


class Describe(TypedDict):
    """Describe the candidate's launches."""

    describe: Literal[True]


class Described(TypedDict):
    """The launches so far, one for each compiled kernel that they need."""

    description: dict[str, Any]
    """Fields of `compilation.description.Description`."""


class Compile(TypedDict):
    """Compile one launch (`compilation.description.Unit`); sent to a compiling process."""

    compile: dict[str, Any]
    target: str
    """Name of the target, the same in all requests to a process."""


class Compiled(TypedDict):
    """The outcome of a compilation (`compilation.outcome.Outcome`)."""

    compiled: dict[str, Any]


class Exit(TypedDict):
    """End the runner."""

    exit: Literal[True]


class Failure(TypedDict):
    """The failure of a request: a status that a runner may report (of `EvalStatus`), and the exception."""

    status: str
    type: str
    message: str
    traceback_tail: str


class Remarks(TypedDict, total=False):
    """The fields that any answer may have."""

    failure: Failure
    notes: dict[str, str]
    """Findings of tripwire and snapshot against the candidate, by `HackFlag`."""
    samples: list[list[object]]
    """Samples of what torch's ops returned (`op_samples`), where the request asked for them."""


# Requests to the jailed judge of a task that is not trusted (`pool.task_judges`), and its answers.


class JudgeOptions(TypedDict):
    """Become a judge with these options; the judge answers with the GPU model that its times refer to."""

    options: dict[str, Any]


class TaskRequest(TypedDict):
    """Judge a candidate, or look for defects of the task."""

    task: tuple[str, str, str, str]
    """Reference, name, entry point and namespace; the same in all requests to a judge."""
    seed: int | None
    judge: dict[str, Any] | None
    """Fields of `EvalRequest` besides the task; null for an audit."""


Request = Load | Run | Time | Dry | Describe | Compile | Translate | Native | Report | Exit | TaskRequest
