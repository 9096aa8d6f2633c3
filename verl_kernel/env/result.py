# SPDX-License-Identifier: Apache-2.0
"""The verdict on one candidate. Unknown is `None`, never 0."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, computed_field, model_validator


class EvalStatus(str, Enum):
    """How an evaluation ended; everything but `infra_error` is a statement about the candidate."""

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
    """Right at reduced sizes, and something else at the task's own."""
    DECOY = "decoy"
    """The output does not depend on the candidate's kernels."""
    UNSAFE = "unsafe"
    """A kernel touches memory that is not its own, reads what nobody wrote, races, or cannot be watched for races."""
    HACKING = "hacking"
    INFRA_ERROR = "infra_error"
    """The evaluator failed; the candidate was not judged."""


OUT_OF_BOUNDS = "CompiledOutOfBounds"
"""Type of the error of an access outside of a launch's tensors."""
LONGEST_NAME, LONGEST_SENTENCE = 100, 2000
_Name = Annotated[str, Field(max_length=LONGEST_NAME)]
_Line = Annotated[int, Field(ge=1, lt=2**31)] | None
_Sentence = Annotated[str, Field(max_length=LONGEST_SENTENCE)]


class Record(BaseModel):
    """What cannot be changed and has no fields but its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Timing(Record):
    """Distribution of one program's time over `n` timed calls, in milliseconds."""

    median: float
    p20: float
    p80: float
    mean: float
    n: int


class Comparison(Record):
    """Candidate and reference by one protocol of a measuring clock."""

    kernel_ms: Timing
    reference_ms: Timing
    speedup: float
    """reference_ms.median / kernel_ms.median."""
    speedup_low: float | None
    """Lower end of the speedup's confidence interval (`clock.statistics.compared`); null for too few calls."""


class Launch(Record):
    """Launches of one kernel with one grid during a single forward."""

    name: str
    grid: tuple[int, ...]
    count: int


class Trials(Record):
    """Correctness trials: how many agreed with the reference, and the worst disagreement seen."""

    passed: int
    total: int
    max_abs: float | None = None
    max_rel: float | None = None
    first_bad_index: tuple[int, ...] | None = None


class CompiledKernel(Record):
    """What Triton's compiler made of a kernel for one combination of types, constants and options."""

    name: str
    registers: int | None
    """Of a thread; null where the assembler does not tell."""
    spills: int | None
    """Bytes that a thread stores for want of registers."""
    shared: int
    """Bytes of shared memory of a block."""
    warps: int
    blocks_per_sm: int | None
    """Blocks that a multiprocessor of the target holds at a time."""
    compile_s: float
    """Wall-clock seconds, those of the first evaluation that needed it."""


class MemoryFinding(Record):
    """One fault that the memory checks found."""

    kind: Literal["uninitialised_read", "race", "outside_view"]
    kernel: _Name
    line: _Line = None
    """In the candidate's file; of a race between a load and a store, the load's. Null where it is not known."""
    message: _Sentence
    """The access, its address, block, warp and lane, and what is wrong with it."""


class TrueSize(Record):
    """How a task was judged that is too large to be run whole."""

    sizes: tuple[dict[int, int], ...]
    """For each reduced copy of the task, the new value of each size that was changed."""
    unknown: str | None = None
    """Why no time is charged at the true size; null where times are those of the true size."""


class EvalError(Record):
    """What went wrong, cut to the part a reader needs."""

    stage: str
    type: str
    message: str
    traceback_tail: str | None = None
    signal: int | None = None


class EvalResult(Record):
    """One candidate's verdict, measurements and provenance (design contract; JSON round-trips)."""

    task_id: str
    task_hash: str | None = None
    """Names the version of the task's text (`Task.text_hash`); null in records older than the field."""
    kernel: str = ""
    """Caller's name for the candidate (a file name in the CLI)."""
    status: EvalStatus
    compiled: bool | None = None
    correctness: bool | None = None
    decoy_kernel: bool | None = None
    hack_flags: tuple[str, ...] = ()
    memory_findings: tuple[MemoryFinding, ...] | None = None
    """What `kernelgym.memory_checks` found, each once; null where nothing was checked."""
    speedup: float | None = None
    """reference_ms.median / kernel_ms.median, times `env.reference_needed` where the reference does what its output
    does not need; null for a correct candidate where an op has no price."""
    speedup_low: float | None = None
    """Lower end of the speedup's confidence interval, 1 within the A/A band; `speedup` itself on a simulated clock."""
    times: dict[str, Comparison] = {}
    """By protocol (`device`, `latency`, `kernelgym`) on a GPU; one of them is also `kernel_ms`, `reference_ms`,
    `speedup` and `speedup_low`. Empty on a simulated clock."""
    unpriced_ops: tuple[str, ...] = ()
    """Torch ops whose time the simulated clock does not know: why `speedup` is null although the candidate is right."""
    kernel_ms: Timing | None = None
    reference_ms: Timing | None = None
    roofline_ms: float | None = None
    """What the reference's work takes at the GPU's peaks of memory and products; null where that is not known. No
    verdict and no reward reads it."""
    reference_mode: str | None = None
    """`eager` or `compile`."""
    timing_source: str | None = None
    """`cuda_event` or `simulated`; the two are never mixed."""
    compiled_for: str | None = None
    """Target (`sm_90`) that what the trials launched was compiled for without a GPU; null where it was not."""
    compiled_kernels: tuple[CompiledKernel, ...] | None = None
    """What became of each distinct launch; null where the stage was not passed."""
    time_coverage: float | None = None
    """Share of the candidate's device time spent in its own kernels, in [0, 1]."""
    number_coverage: float | None = None
    """Share of the candidate's device kernels (launches plus torch ops) that are its own, in [0, 1]."""
    num_custom_kernels: int | None = None
    num_total_kernels: int | None = None
    launches: tuple[Launch, ...] | None = None
    fallback_ops: dict[str, int] | None = None
    """Torch ops that ran outside the candidate's kernels, with counts per forward."""
    top_kernels: tuple[tuple[str, float], ...] | None = None
    """Longest kernels and ops of one forward with their milliseconds, longest first."""
    trials: Trials | None = None
    true_size: TrueSize | None = None
    """Of a task that was judged at reduced sizes; times and coverage are then those of its true size."""
    error: EvalError | None = None
    isolation: tuple[str, ...] | None = None
    """Mechanisms that were in force around the runner, e.g. `("rlimits", "seccomp")`."""
    env: dict[str, Any] = {}
    stage_seconds: dict[str, float] = {}
    queue_seconds: float | None = None
    attempts: int = 1
    task_flags: tuple[str, ...] = ()
    """What makes it a poor task, whoever answers it: `constant_inputs`, `constant_output` (the same in every trial,
    however varied; then nothing is rewarded, since a replay or a constant would be right too), `fixed_input:<number>`
    (that tensor is the same in every trial) and `insensitive:<op>`."""
    seed_commit: str | None = None
    """SHA-256 of the judge's secret seed: proves afterwards which inputs were used."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def rewarded(self) -> bool:
        """Whether this result may earn more than zero."""
        return self.solves and not self.decoy_kernel

    @property
    def solves(self) -> bool:
        """Whether a task that tells right from wrong was answered rightly, by whatever: a recorded decoy too."""
        fit = "constant_output" not in self.task_flags
        return self.status is EvalStatus.OK and bool(self.correctness) and fit

    @property
    def sure_speedup(self) -> float | None:
        """What the measurement supports: `speedup_low`; in records without one the speedup, if no noise is in it."""
        if self.speedup_low is None and self.timing_source == "simulated":
            return self.speedup
        return self.speedup_low

    @model_validator(mode="before")
    @classmethod
    def _derive(cls, fields: Any) -> Any:
        """Drop computed fields when a record is read: they follow from the others."""
        return (
            {key: value for key, value in fields.items() if key != "rewarded"} if isinstance(fields, dict) else fields
        )
