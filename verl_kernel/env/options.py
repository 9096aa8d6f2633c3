# SPDX-License-Identifier: Apache-2.0
"""Options of the gym, validated before anything starts. They live under `kernelgym:` in a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verl_kernel.env.judge_groups import parse_groups
from verl_kernel.errors import ConfigError

_CLOCK_BUDGETS = 16
"""How many times `run_timeout_s` the trials, ablation and clock of an ordinary evaluation take together at most."""


def _choice(key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"kernelgym.{key} is {value!r}; it must be one of {', '.join(allowed)}")


def _at_least(key: str, value: float, low: float) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or value < low:
        raise ConfigError(f"kernelgym.{key} is {value!r}; it must be a number of at least {low}")


@dataclass(frozen=True)
class GymOptions:
    """How candidates are judged and by how many judges.

    Raises:
        ConfigError: a value is out of its range; the message names `kernelgym.<key>`.
    """

    device: str = "auto"
    """`cpu` (Triton's interpreter, simulated clock), `cuda`, or `auto`: CUDA where there is one."""
    num_judges: int = 1
    cpus_per_judge: float = 1.0
    gpus_per_judge: float = 0.0
    judge_resources: Any = None
    """Further Ray resources of each judge, as in `{rack_a: 1}`, or groups of judges, as in
    `[{resources: {rack_a: 1}, num_judges: 4}, ...]`; held as `JudgeGroup`s."""
    model_wait_s: float = 60.0
    """How long a prompt waits for judges of its GPU model, all of them down, before another model takes it over."""
    require_idle_gpu: bool = False
    """Refuse to time where a process that is no judge's uses the GPU, or where nobody can tell."""
    lock_dir: str = "/tmp"
    """Folder where all judges of a machine lock its GPUs, whoever runs them."""
    static_check: str = "coverage"
    """`strict`, `coverage` or `off`."""
    tolerance: str = "scaled"
    """`scaled` (per dtype, relative to the reference's scale) or `parity` (allclose 1e-2, as published)."""
    float32: str = "ieee"
    """`ieee`: products of float32 must be exact to float32. `tf32`: rounding errors of TF32 factors are accepted too,
    and reference and candidate run with TF32 on when timed. Expected outputs are IEEE's in either case."""
    correctness_trials: int = 5
    ablation: bool = True
    """Run a forward without what the kernels compute: right even so means decoy. If false, `decoy_kernel` is null."""
    decoys: str = "refuse"
    """`refuse`, or `record`: a correct decoy is timed as a kernel is and marked `decoy_kernel`, for ablations."""
    reference_mode: str = "eager"
    timing: str = "device"
    """Which of a GPU's times `speedup` and its like come from: `device` (host work hidden behind the flush of L2),
    `latency` (a cold call, host work included) or `kernelgym` (as published: warm L2). A simulated clock has one time
    only and does not look at it."""
    gpu_profile: str = "h100"
    """Nominal GPU of the simulated clock."""
    load_timeout_s: float = 20.0
    """Own time of the candidate's process: running or asleep, not waiting for a processor. Likewise the next two."""
    run_timeout_s: float = 20.0
    """Budget of all forwards of a candidate together."""
    reference_timeout_s: float = 60.0
    queue_size: int = 1024
    """Requests that may wait for a judge; further ones wait with their callers."""
    quarantine_after: int = 3
    """Failures in a row, where another judge served, that take a judge out of rotation."""
    quarantine_s: float = 30.0
    """Length of a first quarantine; each further one is twice as long."""
    reference_cache: str | None = None
    """Folder where judges share what they learn about references; null keeps it in each judge's memory."""
    memory_mb: int = 4096
    disk_mb: int = 256
    """What a candidate may write to its directory and print; a file counts as 16 kB or more."""
    output_kb: int = 64
    """What a candidate may print before the rest is dropped."""
    max_source_kb: int = 100
    require_isolation: tuple[str, ...] = ()
    """Mechanisms without which nothing is evaluated (fails closed)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "require_isolation", tuple(self.require_isolation))
        _choice("device", self.device, ("auto", "cpu", "cuda"))
        _choice("static_check", self.static_check, ("strict", "coverage", "off"))
        _choice("decoys", self.decoys, ("refuse", "record"))
        _choice("tolerance", self.tolerance, ("scaled", "parity"))
        _choice("float32", self.float32, ("ieee", "tf32"))
        _choice("reference_mode", self.reference_mode, ("eager", "compile"))
        _choice("timing", self.timing, ("device", "latency", "kernelgym"))
        _choice("gpu_profile", self.gpu_profile, ("h100", "a100"))
        for key in ("num_judges", "correctness_trials", "queue_size", "memory_mb", "disk_mb", "output_kb"):
            _at_least(key, getattr(self, key), 1)
        for key in ("quarantine_after", "max_source_kb"):
            _at_least(key, getattr(self, key), 1)
        for key in ("load_timeout_s", "run_timeout_s", "reference_timeout_s"):
            _at_least(key, getattr(self, key), 0.1)
        for key in ("cpus_per_judge", "gpus_per_judge", "quarantine_s", "model_wait_s"):
            _at_least(key, getattr(self, key), 0)
        object.__setattr__(self, "judge_resources", parse_groups(self.judge_resources, self.num_judges))
        if not isinstance(self.require_idle_gpu, bool):
            raise ConfigError(f"kernelgym.require_idle_gpu is {self.require_idle_gpu!r}; it must be true or false")
        if not isinstance(self.lock_dir, str) or not self.lock_dir.startswith("/"):
            raise ConfigError(
                f"kernelgym.lock_dir is {self.lock_dir!r}; it must be the full path of a folder, the same for all "
                "judges of a machine"
            )

    @property
    def judges_per_gpu(self) -> int:
        """Judges of this pool that use one GPU; all of them where none asks for a share (a pool without Ray)."""
        if self.gpus_per_judge <= 0:
            return self.num_judges
        return min(self.num_judges, max(1, int(1 / self.gpus_per_judge + 1e-6)))

    @property
    def patience_s(self) -> float:
        """Seconds that an evaluation may wait for its GPU in all: the others on it, at least one, have it once each."""
        once = 2 * self.reference_timeout_s + 4 * self.load_timeout_s + _CLOCK_BUDGETS * self.run_timeout_s + 60.0
        return max(1, self.judges_per_gpu - 1) * once
