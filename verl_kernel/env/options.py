# SPDX-License-Identifier: Apache-2.0
"""Options of the gym, validated before anything starts. They live under `kernelgym:` in a recipe."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Interval, Predicate

from verl_kernel.env.judge_groups import parse_groups
from verl_kernel.errors import ConfigError
from verl_kernel.option_group import OptionGroup

_CLOCK_BUDGETS = 16
"""How many times `run_timeout_s` the trials, ablation and clock of an ordinary evaluation take together at most."""

STRICT: Mapping[str, Any] = {"memory_checks": "refuse", "compile_for": "sm_90", "true_size": "auto"}
"""What `gym=strict` sets; the commands `eval`, `bench` and `data coldstart` have these defaults."""

FILES = ("trial_choice", "reference_cache", "verdict_cache")
"""Keys whose value is a path."""


@dataclass(frozen=True)
class GymOptions(OptionGroup):
    """How candidates are judged and by how many judges.

    Raises:
        ConfigError: a value is out of its range; the message names `kernelgym.<key>`.
    """

    NODE = "kernelgym"

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`cpu` (docs/executor.md, simulated clock), `cuda`, or `auto`: CUDA where there is one."""
    num_judges: Annotated[int, Interval(ge=1)] = 1
    """Judges of the pool, each of which judges one candidate at a time."""
    cpus_per_judge: Annotated[float, Interval(ge=0)] = 1.0
    """CPUs that a judge asks Ray for."""
    gpus_per_judge: Annotated[float, Interval(ge=0)] = 0.0
    """Share of a GPU that a judge holds, where judges are on GPUs."""
    judge_resources: Any = None
    """Further Ray resources of each judge, as in `{rack_a: 1}`, or groups of judges, as in
    `[{resources: {rack_a: 1}, num_judges: 4}, ...]`; held as `JudgeGroup`s."""
    model_wait_s: Annotated[float, Interval(ge=0)] = 60.0
    """How long a prompt waits for judges of its GPU model, all of them down, before another model takes it over."""
    require_idle_gpu: bool = False
    """Refuse to time where a process that is no judge's uses the GPU, or where nobody can tell."""
    lock_dir: Annotated[
        str, Predicate(os.path.isabs), "the full path of a folder, the same for all judges of a machine"
    ] = "/tmp"
    """Folder where all judges of a machine lock its GPUs, whoever runs them."""
    static_check: Literal["strict", "coverage", "off"] = "coverage"
    """How much the gate refuses by a candidate's text alone (docs/judging.md)."""
    tolerance: Literal["scaled", "parity"] = "scaled"
    """`scaled` (per dtype, relative to the reference's scale) or `parity` (allclose 1e-2, as published)."""
    strides: Literal["any", "equal"] = "any"
    """`any`: elements of an output may lie in any order, each at a place of its own. `equal`: as the reference's, or
    contiguous."""
    float32: Literal["ieee", "tf32"] = "ieee"
    """`ieee`: products of float32 must be exact to float32. `tf32`: rounding errors of TF32 factors are accepted too,
    and reference and candidate run with TF32 on when timed. Expected outputs are IEEE's in either case."""
    correctness_trials: Annotated[int, Interval(ge=1)] = 5
    """Correctness trials of a candidate, each on fresh inputs."""
    trial_choice: str | None = None
    """File of `verl-kernel aces` with numbers of trials by kind, for training on the tasks it names; null for none."""
    compile_for: Literal["off", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"] = "off"
    """GPU that what the trials launched is compiled for, without one, or `off`. A device that compiles kernels itself
    does not look at it."""
    compile: Literal["off", "sample", "all"] = "all"
    """Of which of training's candidates: none, a quarter chosen by the judge's secret, or all. Validation's all are."""
    ablation: bool = True
    """Run a forward without what the kernels compute: right even so means decoy. If false, `decoy_kernel` is null."""
    decoys: Literal["refuse", "record"] = "refuse"
    """`refuse`, or `record`: a correct decoy is timed as a kernel is and marked `decoy_kernel`, for ablations."""
    memory_checks: Literal["refuse", "record", "off"] = "off"
    """On a CPU, look for reads of bytes that nobody wrote and for races between programs: `refuse` gives the verdict
    `unsafe`, also to what cannot be watched, `record` notes them in the result, `off` does not look. Accesses outside
    of tensors are a crash anyway."""
    true_size: Literal["auto", "off"] = "off"
    """`auto`: a task too large to be run whole is judged at reduced sizes and timed at its own (docs/checks.md).
    `off`: every task is run as it is. A GPU always does that."""
    reference_mode: Literal["eager", "compile"] = "eager"
    """How the reference is timed on a GPU: as it is written, or through `torch.compile`."""
    timing: Literal["device", "latency", "kernelgym"] = "device"
    """Which of a GPU's times `speedup` and its like come from: `device` (host work hidden behind the flush of L2),
    `latency` (a cold call, host work included) or `kernelgym` (as published: warm L2). A simulated clock has one time
    only and does not look at it."""
    gpu_profile: Literal["h100", "a100"] = "h100"
    """Nominal GPU of the simulated clock."""
    timing_noise: Annotated[float, Interval(ge=0)] = 0.0
    """Noise injected into a simulated clock's times in training, for studies: standard deviation of the logarithm of a
    call's factor. `speedup` and `speedup_low` then come from several noisy calls, as on a GPU."""
    load_timeout_s: Annotated[float, Interval(ge=0.1)] = 20.0
    """Own time of the candidate's process: running or asleep, not waiting for a processor, nor for code of its kernels
    to be made. Likewise the next two."""
    run_timeout_s: Annotated[float, Interval(ge=0.1)] = 20.0
    """Budget of all forwards of a candidate together."""
    reference_timeout_s: Annotated[float, Interval(ge=0.1)] = 60.0
    """Budget of the reference: its import and all its forwards."""
    queue_size: Annotated[int, Interval(ge=1)] = 1024
    """Requests that may wait for a judge; further ones wait with their callers."""
    quarantine_after: Annotated[int, Interval(ge=1)] = 3
    """Failures in a row, where another judge served, that take a judge out of rotation."""
    quarantine_s: Annotated[float, Interval(ge=0)] = 30.0
    """Length of a first quarantine; each further one is twice as long."""
    reference_cache: str | None = None
    """Folder where judges share what they learn about references; null keeps it in each judge's memory."""
    verdict_cache: str | None = None
    """Folder where judges keep verdicts over runs, on a simulated clock only: an answer that a study meets again is not
    judged again. Null judges it anew in every step."""
    prefilter: Literal["off", "cpu"] = "off"
    """`cpu`: workers without a GPU judge each candidate first, and what they refuse never costs GPU time."""
    prefilter_judges: Annotated[int, Interval(ge=1)] = 4
    """How many such workers there are, each with `cpus_per_judge`."""
    memory_mb: Annotated[int, Interval(ge=1)] = 4096
    """Memory that a candidate's process may take."""
    disk_mb: Annotated[int, Interval(ge=1)] = 256
    """What a candidate may write to its directory and print; a file counts as 16 kB or more."""
    max_source_kb: Annotated[int, Interval(ge=1)] = 100
    """Longest source of a candidate."""
    require_isolation: Annotated[tuple[str, ...], "a list of names, as in [seccomp]"] = ()
    """Mechanisms without which nothing is evaluated (fails closed)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prefilter != "off" and self.device != "cuda":
            raise ConfigError(
                f"kernelgym.prefilter is {self.prefilter!r} and kernelgym.device is {self.device!r}: a prefilter "
                "spares GPUs; set the device to cuda, or the prefilter to off"
            )
        for key in FILES:  # a judge works in another folder than whoever wrote the recipe
            if (path := getattr(self, key)) is not None:
                object.__setattr__(self, key, str(Path(path).absolute()))
        object.__setattr__(self, "judge_resources", parse_groups(self.judge_resources, self.num_judges))

    @property
    def judges_per_gpu(self) -> int:
        """Judges of this pool that use one GPU; all of them where none asks for a share (a pool without Ray)."""
        if self.gpus_per_judge <= 0:
            return self.num_judges
        return min(self.num_judges, max(1, int(1 / self.gpus_per_judge + 1e-6)))

    @property
    def judges_validation_apart(self) -> bool:
        """Whether validation is judged otherwise than training."""
        fewer_compiled = self.compile_for != "off" and self.compile != "all"
        return self.trial_choice is not None or fewer_compiled or self.timing_noise > 0

    @property
    def patience_s(self) -> float:
        """Seconds that an evaluation may wait for its GPU in all: the others on it, at least one, have it once each."""
        once = 2 * self.reference_timeout_s + 4 * self.load_timeout_s + _CLOCK_BUDGETS * self.run_timeout_s + 60.0
        return max(1, self.judges_per_gpu - 1) * once
