# SPDX-License-Identifier: Apache-2.0
"""What the machine is: driver, GPU, device nodes, kernel, versions, user, compilers. Host names are left out."""

from __future__ import annotations

import grp
import importlib.metadata
import os
import platform
import pwd
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from benchmarks.gpu.findings import Findings
from benchmarks.gpu.setting import Setting

PACKAGES = ("torch", "triton", "numpy", "pydantic", "psutil", "pytest", "nvidia-ml-py", "dill", "verl", "ray", "vllm")
PROGRAMS = ("gcc", "cc", "clang", "nvcc", "ptxas", "make", "nvidia-smi", "ldconfig")
NODES = ("dev/nvidia*", "dev/nvidia-caps/*", "dev/dri/*", "dev/shm")
KERNEL_FILES = ("/proc/driver/nvidia/version", "/proc/sys/vm/mmap_min_addr", "/proc/sys/kernel/yama/ptrace_scope",
                "/sys/kernel/security/lsm")  # fmt: skip
VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_HOME", "CC", "LD_LIBRARY_PATH", "TRITON_PTXAS_PATH",
             "TRITON_LIBCUDA_PATH", "TRITON_CACHE_DIR", "PYTORCH_CUDA_ALLOC_CONF")  # fmt: skip
_QUERY = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total,compute_mode,persistence_mode,mig.mode.current,"
          "clocks.max.sm,clocks.max.memory,power.limit,clocks_event_reasons.active", "--format=csv")  # fmt: skip


def run(setting: Setting, findings: Findings) -> None:
    """Note all of it; the GPU as torch sees it comes last."""
    for name, value in (*_system(), *_user()):
        findings.fact(name, value)
    for name in PACKAGES:
        findings.row("packages", package=name, version=_version(name))
    for name in PROGRAMS:
        findings.row("programs", program=name, there=shutil.which(name) is not None, says=_first_line(name))
    for path in sorted({str(path) for pattern in NODES for path in Path("/").glob(pattern)}):
        findings.row("device nodes", **_node(path))
    findings.fact("nvidia-smi", _output(["nvidia-smi"]))
    findings.fact("nvidia-smi, details", _output(list(_QUERY)))
    _torch(setting, findings)


def _system() -> Iterator[tuple[str, object]]:
    from verl_kernel.env.sandbox import landlock

    yield "python", platform.python_version()
    yield "kernel", f"{platform.system()} {platform.release()} {platform.machine()}"
    yield "Landlock ABI", landlock.abi()
    yield "processors", f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}"
    yield "memory", f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') >> 30} GiB"
    yield "/dev/shm free", f"{shutil.disk_usage('/dev/shm').free >> 30} GiB"
    for path in KERNEL_FILES:
        with suppress(OSError):
            yield path, Path(path).read_text().strip()
    for name in VARIABLES:
        if name in os.environ:
            yield name, os.environ[name]


def _user() -> Iterator[tuple[str, object]]:
    yield "user", f"{os.geteuid()}, groups {', '.join(map(_group, os.getgroups()))}"
    status = Path("/proc/self/status").read_text().splitlines()
    yield "capabilities", next(line.split()[1] for line in status if line.startswith("CapEff"))
    yield (
        "seccomp and no_new_privs of the caller",
        [line.split()[1] for line in status if line.startswith(("Seccomp:", "NoNewPrivs"))],
    )


def _node(path: str) -> dict[str, object]:
    found = Path(path).stat()
    owner = str(found.st_uid)
    with suppress(KeyError):
        owner = pwd.getpwuid(found.st_uid).pw_name
    mine = os.access(path, os.R_OK | os.W_OK)
    return {
        "path": path,
        "mode": stat.filemode(found.st_mode),
        "owner": owner,
        "group": _group(found.st_gid),
        "open": mine,
    }


def _group(number: int) -> str:
    with suppress(KeyError):
        return grp.getgrgid(number).gr_name
    return str(number)


def _version(name: str) -> str | None:
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return None


def _first_line(program: str) -> str:
    if program in ("nvidia-smi", "ldconfig") or shutil.which(program) is None:
        return ""
    return (_output([program, "--version"]).splitlines() or [""])[0]


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=15)
    except (OSError, subprocess.TimeoutExpired) as exc:
        return str(exc)
    return (done.stdout or done.stderr).strip()


def _torch(setting: Setting, findings: Findings) -> None:
    import torch

    findings.fact("CUDA of torch", torch.version.cuda)
    is_there = torch.cuda.is_available()
    if not is_there and setting.pretend:
        findings.unknown("the GPU as torch sees it")
        return
    findings.check("torch finds a GPU", is_there)
    if is_there:
        for name, value in setting.device().facts().items():
            findings.fact(name, value)
        properties = torch.cuda.get_device_properties(0)
        findings.fact("properties", str(properties))
        findings.fact("L2 cache, MiB", getattr(properties, "L2_cache_size", 0) / 2**20)
