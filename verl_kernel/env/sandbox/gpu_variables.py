# SPDX-License-Identifier: Apache-2.0
"""Variables that a GPU's processes need of their caller's environment, and what the paths in them let a runner read.

The names are those of CUDA, of the dynamic linker and of `triton.knobs`.
"""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Mapping

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
"""What is handed on from a caller to its judges, and from a judge to zygote and runner."""


def kept(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that are set, and the C compiler by its path: a runner has another PATH."""
    found = {name: environment[name] for name in GPU_VARIABLES if name in environment}
    names = (found[_COMPILER],) if found.get(_COMPILER) else _COMPILERS
    paths = [path for name in names if (path := shutil.which(name, path=environment.get("PATH")))]
    return {**found, **({_COMPILER: paths[0]} if paths else {})}


def readable(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Patterns of the files and folders that the variables name."""
    folders = [path for name in _FOLDERS for path in environment.get(name, "").split(os.pathsep)]
    files = [environment.get(name, "") for name in _FILES]
    named = [path for path in (*folders, *files) if os.path.isabs(path) and not _is_too_much(path, environment)]
    return (*map(glob.escape, named), *_beside(environment.get(_COMPILER, "")))


def _is_too_much(path: str, environment: Mapping[str, str]) -> bool:
    """The root, a home, the directory for temporary files, and whatever they lie in."""
    real = os.path.realpath(path)
    private = (os.path.expanduser("~"), environment.get("TMPDIR", "/tmp"))
    return any(os.path.commonpath((real, os.path.realpath(kept))) == real for kept in private)


def _beside(compiler: str) -> tuple[str, ...]:
    """A compiler's programs, libraries and headers, where they do not lie in /usr."""
    if not os.path.isabs(compiler) or (real := os.path.realpath(compiler)).startswith("/usr/"):
        return ()
    root = glob.escape(os.path.dirname(os.path.dirname(real)))
    return tuple(os.path.join(root, name) for name in _BESIDE_A_COMPILER)
