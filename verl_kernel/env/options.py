# SPDX-License-Identifier: Apache-2.0
"""The options of the gym (`kernelgym:` in a recipe), checked before anything starts."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from annotated_types import Interval, Predicate

from verl_kernel.env.gpus import GpuName, gpu_named
from verl_kernel.env.judge_resources import parse_resources
from verl_kernel.errors import ConfigError
from verl_kernel.option_group import OptionGroup, in_words, nearest, option_names

_CLOCK_BUDGETS = 16
"""Longest time of an ordinary evaluation's trials, ablation and clock together, as a multiple of `run_timeout_s`."""

STRICT: Mapping[str, Any] = {"memory_checks": "refuse", "compile_for": "sm_90", "true_size": "auto"}
"""The values that `gym=strict` sets, which are the defaults of the commands `eval`, `bench` and `data coldstart`."""

_HOST_NAME = re.compile(r"[\w-]+(\.[\w-]+)*\.?", re.ASCII)
FILES = ("trial_choice", "reference_cache", "verdict_cache", "address_key")
"""Keys whose value is a path."""
TargetName = Literal["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120", "gfx942", "gfx950", "gfx1100"]
"""GPUs that kernels can be compiled for: NVIDIA's by compute capability, AMD's by architecture."""
_TARGETS = f"one of off, {', '.join(get_args(TargetName))}, or a list of targets, as in [sm_90, gfx942]"


def names_host(url: str) -> bool:
    """Return whether a URL names a host, by name or IP address, and no impossible port."""
    try:
        host, port = urlsplit(url).hostname or "", urlsplit(url).port
        is_ip = ":" in host or host.replace(".", "").isdigit()
        return bool(ip_address(host) if is_ip else _HOST_NAME.fullmatch(host)) and port != 0
    except ValueError:  # no IP address; a port that is no number, or beyond 65535
        return False


def _is_url(value: object) -> bool:
    if not isinstance(value, str) or not value.startswith(("http://", "https://")):
        return False
    return "/" not in value.split("://")[1] and names_host(value)


@dataclass(frozen=True)
class JudgingRules(OptionGroup):
    """How a candidate is judged: its verdict, times and flags depend on every key."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`cpu` (docs/emulator.md, simulated clock), `cuda`, or `auto`: CUDA if there is a GPU."""
    static_check: Literal["strict", "coverage", "off"] = "coverage"
    """How much the static gate refuses from a candidate's text alone (docs/judging.md)."""
    tolerance: Literal["scaled", "parity"] = "scaled"
    """`scaled` (per dtype, relative to the reference's scale) or `parity` (allclose 1e-2, as published)."""
    strides: Literal["any", "equal"] = "any"
    """`any`: an output may have any strides without gaps or overlaps. `equal`: it must have the reference's strides, or
    be contiguous."""
    float32: Literal["ieee", "tf32"] = "ieee"
    """`ieee`: products of float32 must have the accuracy of float32. `tf32`: rounding errors of TF32 factors are
    accepted too, and reference and candidate are timed with TF32 on. Expected outputs are computed without TF32."""
    correctness_trials: Annotated[int, Interval(ge=1)] = 5
    """Correctness trials of a candidate, each on fresh inputs."""
    trial_choice: str | None = None
    """File of `verl-kernel aces` with numbers of trials by kind, for training on the tasks it names; null for none."""
    compile_for: Annotated[Literal["off"] | TargetName | tuple[TargetName, ...], _TARGETS] = "off"
    """GPU for which the launches of the trials are compiled, without having one, or a list of GPUs, or `off`. Targets
    of AMD (`gfx...`) change neither how kernels run nor the times of an NVIDIA GPU. It has no effect on a device that
    compiles kernels itself."""
    compile: Literal["off", "sample", "all"] = "all"
    """Candidates of a training to which `compile_for` applies: none, a quarter chosen by the judge's secret, or all. In
    validations it applies to all."""
    ablation: bool = True
    """Run a forward without the kernels' results; a candidate that stays right is a decoy. If false, `decoy_kernel` is
    null."""
    decoys: Literal["refuse", "record"] = "refuse"
    """`refuse`: a decoy gets the verdict `decoy`. `record`: a correct decoy is timed like a kernel and marked
    `decoy_kernel`, for ablation studies."""
    memory_checks: Literal["refuse", "record", "off"] = "off"
    """On a CPU, look for uninitialised reads and for races between programs. `refuse` gives the verdict `unsafe`, also
    to launches that cannot be checked; `record` lists findings in the result; `off` does not look. An access outside of
    tensors is always a crash."""
    true_size: Literal["auto", "off"] = "off"
    """`auto`: a task too large for a CPU is judged at reduced sizes and timed at its own sizes (docs/checks.md). `off`:
    every task runs at its own sizes, as always on a GPU."""
    other_sizes: bool = False
    """Judge right kernels at sizes too that their task does not name (one more, a prime, the next power of two), where
    the reference takes them: `only_this_size` is among the flags of one that is wrong there."""
    reference_mode: Literal["eager", "compile", "best"] = "eager"
    """How the reference is timed: as it is written, through `torch.compile`, or by the faster of both. Without a GPU
    Inductor's kernels are counted like a candidate's (docs/clock.md)."""
    timing: Literal["device", "latency", "kernelgym"] = "device"
    """Which time of a GPU `speedup` and the like use: `device` (host work is hidden behind a flush of L2), `latency` (a
    cold call, with host work) or `kernelgym` (as published, with a warm L2). It has no effect on a simulated clock."""
    timing_width: Annotated[float, Interval(gt=0, le=1)] = 0.01
    """Width at which the confidence intervals of both medians end a measurement on a GPU, as a share of them. Wider
    takes fewer rounds, and lowers `speedup_low`, which stays a lower bound."""
    gpu_profile: GpuName | str = "h100"
    """Nominal GPU of the simulated clock; figures of one's own follow its name, as in h100_sxm+2447GB/s+114SMs+1.62GHz.
    Only times of `h100` (or `h100_sxm`) were compared with measured ones: all others are marked
    `simulated_unvalidated`."""
    timing_noise: Annotated[float, Interval(ge=0)] = 0.0
    """Noise in a simulated clock's times of a training, for studies: standard deviation of the logarithm of each call's
    factor. `speedup` and `speedup_low` then come from several noisy calls, as on a GPU."""
    require_idle_gpu: bool = False
    """Refuse to measure times while a process other than a judge's uses the GPU, or if that cannot be found out."""
    prefilter: Literal["off", "cpu"] = "off"
    """`cpu`: workers without a GPU judge each candidate first; those that they refuse take no GPU time."""
    prefilter_speedup: Annotated[float, Interval(gt=0)] | None = None
    """Right candidates whose predicted speedup surely lies below this take no GPU time either, and have no time; where
    its interval reaches this, a GPU decides. With null, a GPU times all right candidates."""


@dataclass(frozen=True)
class CandidateLimits(OptionGroup):
    """What a candidate and a reference may take: more is a verdict of its own."""

    load_timeout_s: Annotated[float, Interval(ge=0.1)] = 20.0
    """Limit for loading a candidate. This and the next two limits count the time that a process runs or sleeps, not its
    waiting for a free core or for the compilation of its kernels."""
    run_timeout_s: Annotated[float, Interval(ge=0.1)] = 20.0
    """Limit for all forwards of a candidate together."""
    reference_timeout_s: Annotated[float, Interval(ge=0.1)] = 60.0
    """Limit for the reference: its import and all its forwards; once more for its compilation by `torch.compile`."""
    memory_mb: Annotated[int, Interval(ge=1)] = 4096
    """Memory that a candidate's process may take."""
    disk_mb: Annotated[int, Interval(ge=1)] = 256
    """Disk space for what a candidate writes to its folder and prints; each file counts as at least 16 kB."""
    max_source_kb: Annotated[int, Interval(ge=1)] = 100
    """Longest source of a candidate."""


@dataclass(frozen=True)
class PoolOptions(OptionGroup):
    """Where judging takes place, by how many judges, and what is kept: no key changes a verdict."""

    num_judges: Annotated[int, Interval(ge=1)] = 1
    """Judges of the pool; each judges one candidate at a time."""
    cpus_per_judge: Annotated[float, Interval(ge=0)] = 1.0
    """CPUs that a judge asks Ray for."""
    gpus_per_judge: Annotated[float, Interval(ge=0)] = 0.0
    """Share of a GPU that a judge asks Ray for; 0 for none."""
    judge_resources: Any = None
    """Further Ray resources of each judge, as in `{rack_a: 1}`."""
    address: Annotated[str, Predicate(_is_url), "an address as in http://judges:8008"] | None = None
    """Address of a service (`verl-kernel serve`) whose judges judge, by the same options; null starts judges here."""
    address_key: str | None = None
    """File that holds an API key of that service; null sends none."""
    references: Literal["trusted", "jailed"] = "trusted"
    """`trusted`: references run in the judges' processes. `jailed`, for tasks of others, as `verl-kernel serve` has it:
    each task has a judge of its own in a jail, which can change the verdicts on that task only (docs/operating.md)."""
    require_isolation: Annotated[tuple[str, ...], "a list of names, as in [seccomp]"] = ()
    """Mechanisms of isolation without which nothing is evaluated."""
    queue_size: Annotated[int, Interval(ge=1)] = 1024
    """Requests that may wait for a judge; callers of further requests wait for a place in the queue."""
    quarantine_after: Annotated[int, Interval(ge=1)] = 3
    """Failures in a row, on requests that another judge served, after which a judge is quarantined."""
    quarantine_s: Annotated[float, Interval(ge=0)] = 30.0
    """Length of a judge's first quarantine; each further one is twice as long."""
    reference_cache: str | None = None
    """Folder in which judges share what they learn about references; null keeps it in each judge's memory."""
    verdict_cache: str | None = None
    """Folder in which judges keep verdicts across runs, on a simulated clock only: equal answers are judged once. With
    null, they are judged again in every step."""
    prefilter_judges: Annotated[int, Interval(ge=1)] = 4
    """Number of workers of the prefilter, each with `cpus_per_judge`."""
    lock_dir: Annotated[
        str, Predicate(os.path.isabs), "the full path of a folder, the same for all judges of a machine"
    ] = "/tmp"
    """Folder of the locks by which all judges of a machine, of all users, share its GPUs."""


@dataclass(frozen=True)
class GymOptions(PoolOptions, CandidateLimits, JudgingRules):
    """The options that say how candidates are judged, and by how many judges.

    Raises:
        ConfigError: a value is out of its range; the message names `kernelgym.<key>`.
    """

    NODE = "kernelgym"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prefilter != "off" and self.device != "cuda":
            raise ConfigError(
                f"kernelgym.prefilter is {self.prefilter!r} and kernelgym.device is {self.device!r}: a prefilter "
                "spares GPUs; set the device to cuda, or the prefilter to off"
            )
        if self.prefilter == "off" and self.prefilter_speedup is not None:
            raise ConfigError(
                f"kernelgym.prefilter_speedup is {self.prefilter_speedup:g} and kernelgym.prefilter is 'off': set the "
                "prefilter to cpu, or prefilter_speedup to null"
            )
        try:
            gpu = gpu_named(self.gpu_profile)
        except ValueError as exc:
            question = nearest(self.gpu_profile.partition("+")[0], get_args(GpuName))
            raise ConfigError(f"kernelgym.gpu_profile is {self.gpu_profile!r}; {question}{exc}") from None
        # torch's compiler writes its kernels for NVIDIA's GPUs here.
        if self.reference_mode != "eager" and gpu.targets != "sm_":
            raise ConfigError(
                f"kernelgym.reference_mode is {self.reference_mode!r} and kernelgym.gpu_profile is "
                f"{self.gpu_profile!r}: compiled references are timed for NVIDIA's GPUs only; set the mode to eager"
            )
        if self.references == "jailed":
            self._refuse_sharing()
        for key in FILES:  # resolve relative paths here: judges run in a different folder
            if (path := getattr(self, key)) is not None:
                object.__setattr__(self, key, str(Path(path).absolute()))
        object.__setattr__(self, "judge_resources", parse_resources(self.judge_resources))
        self._name_targets()

    def _refuse_sharing(self) -> None:
        """Refuse, for judges that are not trusted, a GPU and folders that others read."""
        if self.device == "cuda":
            raise ConfigError(
                "kernelgym.references is 'jailed' and kernelgym.device is 'cuda', whose driver the jail of a judge "
                "keeps out: judge tasks that you trust, with references: trusted (--references trusted)"
            )
        for key in ("reference_cache", "verdict_cache"):
            if (path := getattr(self, key)) is not None:
                raise ConfigError(
                    f"kernelgym.{key} is {path!r} and kernelgym.references is 'jailed': a judge that is not trusted "
                    "must not write what others read; leave the folder null"
                )

    def _name_targets(self) -> None:
        """Refuse a list that names no target or one twice, and replace a list of one by its only name."""
        named = self.compile_for
        if isinstance(named, str):
            return
        if not named or len(set(named)) < len(named):
            raise ConfigError(
                f"kernelgym.compile_for is {in_words(named)}; name each target once: it must be {_TARGETS}"
            )
        if len(named) == 1:
            object.__setattr__(self, "compile_for", named[0])

    @classmethod
    def judging_keys(cls) -> tuple[str, ...]:
        """Return the keys on which verdicts depend; the others say where, and by how many judges."""
        return option_names(JudgingRules) + option_names(CandidateLimits)

    @property
    def targets(self) -> tuple[str, ...]:
        """GPUs for which the launches of the trials are compiled, in the order in which they are named."""
        if self.compile_for == "off":
            return ()
        return (self.compile_for,) if isinstance(self.compile_for, str) else self.compile_for

    @property
    def judges_per_gpu(self) -> int:
        """Judges of this pool that share one GPU; all of them if they ask for no share, as in a pool without Ray."""
        if self.gpus_per_judge <= 0:
            return self.num_judges
        return min(self.num_judges, max(1, int(1 / self.gpus_per_judge + 1e-6)))

    @property
    def judges_validation_apart(self) -> bool:
        """Whether validation and training are judged by different rules."""
        fewer_compiled = bool(self.targets) and self.compile != "all"
        return self.trial_choice is not None or fewer_compiled or self.timing_noise > 0

    @property
    def patience_s(self) -> float:
        """Seconds that an evaluation may wait for its GPU in all: one evaluation of each other judge on the GPU."""
        once = 2 * self.reference_timeout_s + 4 * self.load_timeout_s + _CLOCK_BUDGETS * self.run_timeout_s + 60.0
        return max(1, self.judges_per_gpu - 1) * once
