# SPDX-License-Identifier: Apache-2.0
"""The verdict on one candidate. An unknown value is `None`, never 0."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, computed_field, model_validator


class EvalStatus(str, Enum):
    """The end of an evaluation; every status but `infra_error` is a verdict on the candidate."""

    OK = "ok"
    REJECTED_STATIC = "rejected_static"
    """The static gate refused the source before anything ran."""
    LOAD_ERROR = "load_error"
    """Importing the source or building `ModelNew` raised."""
    COMPILE_ERROR = "compile_error"
    """Triton refused a kernel."""
    RUNTIME_ERROR = "runtime_error"
    CRASH = "crash"
    """The runner process died."""
    TIMEOUT = "timeout"
    OOM = "oom"
    INCORRECT = "incorrect"
    SIZE_DEPENDENT = "size_dependent"
    """The candidate is right at reduced sizes, but at the task's own sizes its kernels do something else."""
    DECOY = "decoy"
    """The output does not depend on the candidate's kernels."""
    UNSAFE = "unsafe"
    """A kernel accesses memory outside its tensors, reads uninitialised memory, has a race, or cannot be checked for
    races."""
    HACKING = "hacking"
    INFRA_ERROR = "infra_error"
    """The evaluator failed; the candidate was not judged."""


ONLY_THIS_SIZE = "only_this_size"
"""Flag of a right kernel that is wrong at a size that its task does not name."""
OUT_OF_BOUNDS = "CompiledOutOfBounds"
"""`EvalError.type` of an access outside a launch's tensors."""
LONGEST_NAME, LONGEST_SENTENCE = 100, 2000
_Name = Annotated[str, Field(max_length=LONGEST_NAME)]
_Line = Annotated[int, Field(ge=1, lt=2**31)] | None
_Sentence = Annotated[str, Field(max_length=LONGEST_SENTENCE)]


class Record(BaseModel):
    """Base of immutable records; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Timing(Record):
    """The distribution of a program's time over `n` timed calls, in milliseconds."""

    median: float
    p20: float
    p80: float
    mean: float
    n: int


class Comparison(Record):
    """The times of candidate and reference by one protocol of a measuring clock."""

    kernel_ms: Timing
    reference_ms: Timing
    speedup: float
    """reference_ms.median / kernel_ms.median."""
    speedup_low: float | None
    """Lower end of the speedup's confidence interval (`clocks.statistics.compared`); null if calls are too few."""


class Launch(Record):
    """The launches of a kernel with the same grid during one forward."""

    name: str
    grid: tuple[int, ...]
    count: int


class Trials(Record):
    """The correctness trials: how many agreed with the reference, and the largest error."""

    passed: int
    total: int
    max_abs: float | None = None
    max_rel: float | None = None
    first_bad_index: tuple[int, ...] | None = None


Bound = Literal["device memory", "L2", "tensor cores", "arithmetic", "latency", "launch", "host"]
"""What a launch spends its time on; `launch` is the distance of two kernels, `host` the wait for its being issued."""
Limit = Literal["registers", "shared memory", "warps and blocks"]
ChangeKind = Literal[
    "coalesce", "once", "tensor_cores", "tiles", "fill", "occupancy", "spills", "in_flight", "integers", "fuse"
]
"""`coalesce`: lanes access consecutive elements; `once`: each byte of a tensor is moved once; `tensor_cores`: products
run there; `tiles`: of products, with twice as many rows and columns; `fill`: more programs share the work; `occupancy`:
an SM holds as many blocks as its places for warps allow; `spills`: none; `in_flight`: twice as many bytes are requested
before a wait; `integers`: no integer instructions; `fuse`: one launch in place of two."""


class CompiledKernel(Record):
    """The resources of a kernel that Triton compiled for one target, and one set of types, constants and options."""

    name: str
    target: str | None = None
    """The GPU, as in `kernelgym.compile_for`; null in records older than the field."""
    registers: int | None
    """Registers per thread, AMD's accumulators among them; null if the assembler does not report them."""
    accumulators: int | None = None
    """Those of them that are kept for matrix instructions (AMD's AGPRs); null where there is no such kind."""
    scalars: int | None = None
    """Scalar registers per warp (AMD's SGPRs); null where there is no such kind."""
    spills: int | None
    """Bytes per thread that are spilled for lack of registers."""
    shared: int
    """Shared memory (AMD's LDS) per block, in bytes."""
    warps: int
    """Warps (AMD's waves) per block."""
    matrix: bool | None = None
    """Whether it has instructions of the matrix units; null in records older than the field."""
    blocks_per_sm: int | None
    """Blocks that a multiprocessor of the target (AMD's compute unit) can hold at once."""
    limit: Limit | None = None
    """What keeps more blocks from a multiprocessor; null if unknown."""
    compile_s: float
    """Wall-clock seconds of the compilation; later evaluations that reuse it repeat the value."""


class TensorTraffic(Record):
    """What a launch moves of one tensor, in bytes."""

    name: _Name
    """The kernel's argument; arguments that share memory are joined by a slash."""
    role: Literal["input", "intermediate", "output"]
    """`intermediate`: written earlier in the forward, or read later in it."""
    read: int
    """Bytes that are requested from L2."""
    written: int
    least: int
    """Bytes that the launch needs: each one once, without what only fills sectors."""


class WastedSectors(Record):
    """Accesses of one source line that take more sectors of 32 bytes than their bytes need."""

    line: _Line
    access: Literal["load", "store", "atomic"]
    tensor: _Name
    sectors: int
    needed: int
    """Sectors if the lanes of each warp accessed consecutive elements."""


class LaunchProfile(Record):
    """Predictions for the launches of one compiled kernel with the same grid; counts are those of one launch."""

    name: _Name
    grid: tuple[int, ...]
    count: int
    """How many of them a forward has."""
    ms: float
    """Milliseconds of one launch, without waiting for the host."""
    bound: Bound
    roofline: float
    """Share of the launch's time that its least bytes and its products would take at the GPU's peaks."""
    dram_bytes: int
    l2_bytes: int
    sms: int
    """Multiprocessors that have work."""
    gpu_sms: int
    """Multiprocessors of the GPU."""
    waves: float
    """The grid over the blocks that the GPU holds at once."""
    even_blocks: int
    """Blocks as heavy as the heaviest one that would do the launch's work: less than the grid if work is uneven."""
    occupancy: float
    """Mean share of the places for warps that are taken, in [0, 1]."""
    theoretical_occupancy: float
    """The same if the grid filled the GPU."""
    limit: Limit | None
    """What keeps more blocks from a multiprocessor; null if the kernel was not compiled."""
    registers: int | None
    spills: int | None
    """Bytes per thread."""
    shared: int | None
    """Bytes per block."""
    flops: int
    """Floating-point operations, products included."""
    product_flops: int
    """Operations of products on tensor cores."""
    no_tensor_cores: str | None
    """Why products do not run on tensor cores; null if they do, or if the task has none."""
    tensors: tuple[TensorTraffic, ...]
    wasted: tuple[WastedSectors, ...]
    """The most wasteful lines first."""


class Change(Record):
    """A change of a program, priced by the clock with the counts that it would change."""

    kind: ChangeKind
    kernel: _Name
    """The launch that is changed, or the first of two that are fused."""
    subject: _Name
    """The tensor, for `coalesce` and `once`; the kernel or op to fuse with; else empty."""
    line: _Line = None
    ms: float
    """Milliseconds of the forward with the change."""


class ForwardProfile(Record):
    """A profile of one forward; all figures are predicted by the simulated clock."""

    ms: float
    gpu: str
    """Name of the simulated GPU."""
    host_ms: float
    """Milliseconds for which the device waits for the host."""
    dram_bytes: int
    least_bytes: int | None
    """Bytes of the task's inputs, weights and outputs, each once; null if sizes change between trials."""
    roofline: float | None
    """Share of the time that the task's least bytes and its products would take at the GPU's peaks."""
    launches: tuple[LaunchProfile, ...]
    """The longest first."""
    changes: tuple[Change, ...]
    """Single changes that save time, the one that saves most first."""


class MemoryFinding(Record):
    """A fault that the memory checks found."""

    kind: Literal["uninitialised_read", "race", "outside_view"]
    kernel: _Name
    line: _Line = None
    """Line of the candidate's file; for a race between a load and a store, the line of the load. Null if unknown."""
    message: _Sentence
    """The access with its address, block, warp and lane, and what is wrong with it."""


class TrueSize(Record):
    """How a task was judged that is too large to run at its own sizes."""

    sizes: tuple[dict[int, int], ...]
    """For each reduced copy of the task, the new value of each size that was changed."""
    unknown: str | None = None
    """Why times at the true sizes are unknown; null if the times are those of the true sizes."""


class SizeVerdict(Record):
    """The verdict at one size of a task that has several."""

    name: str
    """What the size is drawn with, as in `rows=128,columns=64`."""
    status: EvalStatus
    speedup: float | None
    speedup_low: float | None
    kernel_ms: float | None
    """Median."""
    reference_ms: float | None
    """Median."""
    time_coverage: float | None


class EvalError(Record):
    """An error, shortened to what its reader needs."""

    stage: str
    type: str
    message: str
    traceback_tail: str | None = None
    signal: int | None = None


class EvalResult(Record):
    """The verdict on a candidate with its measurements and provenance; JSON keeps every field."""

    task_id: str
    task_hash: str | None = None
    """Version of the task's text (`Task.text_hash`); null in records older than the field."""
    kernel: str = ""
    """The caller's name for the candidate (a file name on the command line)."""
    status: EvalStatus
    compiled: bool | None = None
    correctness: bool | None = None
    decoy_kernel: bool | None = None
    hack_flags: tuple[str, ...] = ()
    memory_findings: tuple[MemoryFinding, ...] | None = None
    """Findings of `kernelgym.memory_checks`, without duplicates; null if memory was not checked."""
    speedup: float | None = None
    """reference_ms.median / kernel_ms.median, times `env.reference_needed` if the reference does work that its output
    does not need; null for a correct candidate if an op has no price."""
    speedup_low: float | None = None
    """Lower end of the speedup's confidence interval, 1 within the A/A band; `speedup` itself on a simulated clock."""
    times: dict[str, Comparison] = {}
    """By protocol (`device`, `latency`, `kernelgym`) on a GPU; one of them is also `kernel_ms`, `reference_ms`,
    `speedup` and `speedup_low`. Empty on a simulated clock."""
    unpriced_ops: tuple[str, ...] = ()
    """Torch ops whose time the simulated clock does not know; with such ops `speedup` is null though the candidate is
    right."""
    kernel_ms: Timing | None = None
    reference_ms: Timing | None = None
    roofline_ms: float | None = None
    """Time of the reference's work at the GPU's peaks of memory and products; null if unknown. No verdict and no reward
    uses it."""
    kernel_interval_ms: tuple[float, float] | None = None
    """Interval that holds nine of ten predicted times (`machine.uncertainty`); null if the time was measured."""
    reference_interval_ms: tuple[float, float] | None = None
    speedup_interval: tuple[float, float] | None = None
    """The same of `speedup`."""
    reference_mode: str | None = None
    """`eager` or `compile`: the mode of the reference whose time is `reference_ms`; null if nothing was timed."""
    timing_source: str | None = None
    """`cuda_event`; `simulated`; or `simulated_unvalidated` for a simulated GPU whose times were compared with no
    measurement. Times of two sources are never compared."""
    compiled_for: str | tuple[str, ...] | None = None
    """Target, such as `sm_90`, for which the launches were compiled without a GPU, or a list of several; null if they
    were not."""
    compiled_kernels: tuple[CompiledKernel, ...] | None = None
    """The compiled kernel of each distinct launch, by target; null if that stage was not passed."""
    time_coverage: float | None = None
    """Share of the candidate's device time spent in its own kernels, in [0, 1]."""
    number_coverage: float | None = None
    """Share of the candidate's device kernels (launches plus torch ops) that are its own, in [0, 1]."""
    num_custom_kernels: int | None = None
    num_total_kernels: int | None = None
    launches: tuple[Launch, ...] | None = None
    fallback_ops: dict[str, int] | None = None
    """Torch ops of one forward, with their counts."""
    top_kernels: tuple[tuple[str, float], ...] | None = None
    """The longest kernels and ops of one forward with their milliseconds, longest first."""
    profile: ForwardProfile | None = None
    """A profile of one forward, predicted from its counts; null if no time was computed from counts. No verdict and no
    reward uses it."""
    trials: Trials | None = None
    true_size: TrueSize | None = None
    """Set if the task was judged at reduced sizes; times and coverage are then those of its true sizes."""
    sizes: tuple[SizeVerdict, ...] | None = None
    """The verdict at each size of a task of several (`WORKLOADS`); null for a task of one. `speedup` and its interval
    are then geometric means over the sizes; all else is that of the worst one: the first that is not rewarded, else
    the one with the least speedup."""
    other_sizes: tuple[SizeVerdict, ...] | None = None
    """The verdicts at sizes that the task does not name, as in `257 for 256`; null unless they were asked for. They
    change nothing but a flag: `only_this_size` where one of them is wrong."""
    error: EvalError | None = None
    isolation: tuple[str, ...] | None = None
    """Mechanisms of isolation in force for the runner, e.g. `("rlimits", "seccomp")`."""
    env: dict[str, Any] = {}
    stage_seconds: dict[str, float] = {}
    queue_seconds: float | None = None
    attempts: int = 1
    task_flags: tuple[str, ...] = ()
    """Defects of the task, for all its candidates: `constant_inputs`; `constant_output` (the output is the same in
    every trial; nothing is rewarded, since a replay or a constant would be right too); `fixed_input:<number>` (that
    tensor is the same in every trial); `insensitive:<op>`; `fails_at_times` (it fails at seeds other than its own)."""
    seed_commit: str | None = None
    """SHA-256 of the judge's secret seed, which proves afterwards which inputs were used."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def rewarded(self) -> bool:
        """Whether this result may earn a reward above zero."""
        return self.solves and not self.decoy_kernel

    @property
    def solves(self) -> bool:
        """Whether the output is right, on a task that can tell right from wrong; a recorded decoy solves it too."""
        fit = "constant_output" not in self.task_flags
        return self.status is EvalStatus.OK and bool(self.correctness) and fit

    @property
    def sure_speedup(self) -> float | None:
        """The speedup that the measurement supports.

        This is `speedup_low`; in older records without it, `speedup` if the clock was simulated and thus has no noise.
        """
        return self.speedup if self.speedup_low is None and self.is_simulated else self.speedup_low

    @property
    def worst_speedup(self) -> float | None:
        """The least speedup over the sizes of the task; `speedup` for a task of one size."""
        speedups = [verdict.speedup for verdict in self.sizes or ()]
        return self.speedup if self.sizes is None else min((one for one in speedups if one is not None), default=None)

    def at_worst_size(self) -> EvalResult:
        """Return the result with the speedup of the size at which it is least."""
        lows = [one.speedup_low for one in self.sizes or () if one.speedup_low is not None]
        return self.model_copy(update={"speedup": self.worst_speedup, "speedup_low": min(lows, default=None)})

    @property
    def wrong_sizes(self) -> tuple[str, ...]:
        """Names of the sizes at which the candidate is not right."""
        return tuple(verdict.name for verdict in self.sizes or () if verdict.status is not EvalStatus.OK)

    @property
    def is_simulated(self) -> bool:
        """Whether times are those of a simulated GPU."""
        return self.timing_source == "simulated" or self.is_unvalidated

    @property
    def is_unvalidated(self) -> bool:
        """Whether times are those of a simulated GPU, and were compared with no measurement."""
        return self.timing_source == "simulated_unvalidated"

    @model_validator(mode="before")
    @classmethod
    def _derive(cls, fields: Any) -> Any:
        """Drop `rewarded` when a record is read: it is computed from the other fields."""
        return (
            {key: value for key, value in fields.items() if key != "rewarded"} if isinstance(fields, dict) else fields
        )
