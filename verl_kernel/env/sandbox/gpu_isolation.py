# SPDX-License-Identifier: Apache-2.0
"""Grants of a runner on an NVIDIA GPU: what the driver needs to start, and the device nodes of one GPU.

The driver (libcuda, 570 and later) binds an abstract unix socket and listens on it, writes the names of its threads to
/proc/self/task, and returns error 304 if one of these or a file below is refused.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from verl_kernel.env.sandbox.isolation import IsolationProfile

# Variables that a GPU's processes need from their caller's environment, and the paths in them that a runner may read.
#
# The names are those of CUDA, of the dynamic linker and of `triton.knobs`.


_FOLDERS = (
    *("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH"),
    *("TRITON_LIBCUDA_PATH", "TRITON_CUDACRT_PATH", "TRITON_CUDART_PATH"),
)
_FILES = (
    *("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH", "TRITON_CUOBJDUMP_PATH", "TRITON_NVDISASM_PATH"),
    "TRITON_LIBDEVICE_PATH",
)
_COMPILER = "CC"
_COMPILERS = ("gcc", "clang")
_BESIDE_A_COMPILER = ("bin", "lib*", "include", "*-linux-*")
GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", _COMPILER, *_FOLDERS, *_FILES)
"""Variables passed from a caller to its judges, and from a judge to zygote and runner."""


def kept(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are set, and the C compiler by its path, since a runner has another PATH."""
    variables = {name: environment[name] for name in GPU_VARIABLES if name in environment}
    names = (variables[_COMPILER],) if variables.get(_COMPILER) else _COMPILERS
    paths = [path for name in names if (path := shutil.which(name, path=environment.get("PATH")))]
    return {**variables, **({_COMPILER: paths[0]} if paths else {})}


def readable(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return patterns of the files and folders that the variables name."""
    folders = [path for name in _FOLDERS for path in environment.get(name, "").split(os.pathsep)]
    files = [environment.get(name, "") for name in _FILES]
    named = [path for path in (*folders, *files) if os.path.isabs(path) and not _is_too_much(path, environment)]
    return (*map(glob.escape, named), *_beside(environment.get(_COMPILER, "")))


def _is_too_much(path: str, environment: Mapping[str, str]) -> bool:
    """Whether a path is too broad to open: the home or the temporary directory, or a parent of one."""
    real = os.path.realpath(path)
    private = (os.path.expanduser("~"), environment.get("TMPDIR", "/tmp"))
    return any(os.path.commonpath((real, os.path.realpath(private_path))) == real for private_path in private)


def _beside(compiler: str) -> tuple[str, ...]:
    """Return patterns of a compiler's programs, libraries and headers, if they are not in /usr."""
    if not os.path.isabs(compiler) or (real := os.path.realpath(compiler)).startswith("/usr/"):
        return ()
    root = glob.escape(os.path.dirname(os.path.dirname(real)))
    return tuple(os.path.join(root, name) for name in _BESIDE_A_COMPILER)


DRIVER = "/proc/driver/nvidia"
"""Folder in which the driver describes itself and its GPUs."""
MINOR = "VERL_KERNEL_GPU_MINOR"
"""Variable by which a judge tells its zygote the number of its GPU's node; unset if unknown."""
_NODES_OF_ALL = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "dxg", "zero")
_NODES_OF_EVERY_GPU = ("nvidia[0-9]*", "nvidia-caps/*")
_READABLE = (
    *(DRIVER, "/proc/driver/nvidia-uvm", "/proc/sys/vm/mmap_min_addr", "/proc/devices", "/proc/modules"),
    *("/sys/module/nvidia*", "/sys/bus/pci", "/sys/devices", "/etc/nvidia", "/etc/alternatives", "/opt/cuda"),
)
_MINOR_LINE, _UUID_LINE = (re.compile(rf"^{name}:\s*(\S+)", re.MULTILINE) for name in ("Device Minor", "GPU UUID"))
_SLICE_LINE = re.compile(r"^DeviceFileMinor:\s*(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class GpuNode:
    """A GPU described by the driver's files."""

    minor: str
    """Number of its device node, /dev/nvidia<minor>."""
    uuid: str


def find_gpu(uuid: str, pci_address: str) -> GpuNode | None:
    """Find the GPU with this UUID or PCI address (`0000:3b:00.0`); None if the driver's files do not tell."""
    for path in sorted(glob.glob(f"{DRIVER}/gpus/*/information")):
        text = Path(path).read_text(errors="replace")
        minor, uuid_line = _MINOR_LINE.search(text), _UUID_LINE.search(text)
        is_it = Path(path).parent.name == pci_address or (uuid_line is not None and uuid_line[1] == uuid)
        if is_it and minor is not None and uuid_line is not None:
            return GpuNode(minor[1], uuid_line[1])
    return None


def profile(environment: Mapping[str, str], dev: str = "/dev") -> IsolationProfile:
    """Return the grants of a runner in this environment.

    Args:
        environment: the zygote's environment; `MINOR` in it closes the nodes of all other GPUs.
        dev: folder of the device nodes.
    """
    return IsolationProfile(
        nodes=tuple(f"{dev}/{name}" for name in _nodes(environment.get(MINOR))),
        readable=(*_READABLE, *readable(environment)),
        may_start_programs=True,  # Triton calls ptxas and a C compiler, and the driver starts threads
        may_listen=True,
        may_name_threads=True,
        limits_addresses=False,  # the driver reserves more than any sensible limit
        file_bytes=256 << 20,  # enough for the files that a compiler writes
        open_files=1024,
    )


def _nodes(minor: str | None) -> tuple[str, ...]:
    if minor is None:
        return (*_NODES_OF_ALL, *_NODES_OF_EVERY_GPU)
    slices = sorted(glob.glob(f"{DRIVER}/capabilities/gpu{minor}/mig/**/access", recursive=True))
    numbers = [match[1] for path in slices if (match := _SLICE_LINE.search(Path(path).read_text()))]
    return (*_NODES_OF_ALL, f"nvidia{minor}", *(f"nvidia-caps/nvidia-cap{number}" for number in numbers))
