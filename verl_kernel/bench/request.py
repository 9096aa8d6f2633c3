# SPDX-License-Identifier: Apache-2.0
"""What a bench is asked: its options, and the header that records them."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Interval

import verl_kernel
from verl_kernel.bench.models.endpoint import Sampling
from verl_kernel.bench.records import RunHeader
from verl_kernel.bench.suites import Suite
from verl_kernel.env import GymOptions
from verl_kernel.option_group import OptionGroup, option_names
from verl_kernel.reward.options import ConversationOptions
from verl_kernel.reward.profiling import ProfilingReward

_RECORDED = tuple(key for key in GymOptions.judging_keys() if key not in ("device", "reference_mode"))
"""Options of the gym that a header names; two have places of their own there."""
_EDGE = 1 << 20
"""Bytes at either end of a model's file that its digest covers."""


@dataclass(frozen=True)
class BenchOptions(ConversationOptions):
    """Options of a bench besides those of the gym, of the reward and of the endpoint.

    Raises:
        ConfigError: a value is out of its range; the message names `bench.<key>`.
    """

    NODE = "bench"

    samples: Annotated[int, Interval(ge=1)] = 1
    """Independent trajectories of each task."""
    turns: Annotated[int, Interval(ge=1)] = 1
    seed: Annotated[int, Interval(ge=0)] = 0
    """Each answer is asked for with a seed made of this one, task, sample and turn; the judges' inputs depend on it."""
    requests: Annotated[int, Interval(ge=1)] = 16
    """In flight at the model at a time."""


def make_header(
    suite: Suite,
    options: BenchOptions,
    sampling: Sampling,
    gym: GymOptions,
    *,
    model: str,
    source: Literal["endpoint", "vllm", "kernels"],
    device: str,
    versions: Mapping[str, str],
    reward: ProfilingReward | None = None,
) -> RunHeader:
    """Return the header of a run that begins now."""
    return RunHeader(
        suite=suite.name,
        suite_hash=suite.hash,
        prompt_hash=suite.prompt_hash,
        tasks=len(suite.tasks),
        model=model,
        source=source,
        samples=options.samples,
        turns=options.turns,
        context=options.context,
        window=None if options.context == "concat" else options.window,
        total_tokens=options.total_tokens,
        total_seconds=options.total_seconds,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        max_tokens=sampling.max_tokens,
        feedback=options.feedback,
        feedback_chars=options.feedback_chars,
        seed=options.seed,
        device=device,
        baseline=gym.reference_mode,
        gym=_chosen(gym),
        reward=_chosen(reward or ProfilingReward()),
        versions=dict(versions),
        started=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


def versions_here(*packages: str) -> dict[str, str]:
    """Return the versions of Python, of this package and of the other packages, if installed."""
    versions = {"python": platform.python_version(), "verl_kernel": verl_kernel.__version__}
    for package in ("torch", "triton", *packages):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def folder_digest(folder: Path) -> str:
    """Return a short hash of a model's files: names, sizes, and the first and last megabyte of each."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.iterdir() if path.is_file()):
        size = file.stat().st_size
        digest.update(f"{file.name}\0{size}\0".encode())
        with file.open("rb") as data:
            digest.update(data.read(_EDGE))
            data.seek(max(0, size - _EDGE))
            digest.update(data.read(_EDGE))
    return digest.hexdigest()[:16]


def _chosen(group: OptionGroup) -> dict[str, object]:
    """Return the options that differ from their defaults, as JSON values."""
    keys = _RECORDED if isinstance(group, GymOptions) else option_names(type(group))
    named = {key: (getattr(group, key), getattr(type(group)(), key)) for key in keys}
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, (value, default) in named.items()
        if value != default
    }
