# SPDX-License-Identifier: Apache-2.0
"""Whether this machine can hold the environment, each reason against it in one sentence with its remedy."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path

PYTHONS = ((3, 10), (3, 11), (3, 12))
REMEDY = "name another disk with `make env VENV=/disk/venv`, and one for downloads with UV_CACHE_DIR=/disk/cache"
"""For a disk that is too small for `make env`."""


class Refused(Exception):
    """Something that the user has to change; the message is one sentence that says what."""


def check_machine(untested: bool) -> None:
    """Refuse operating systems, processors and Pythons that the locked packages do not fit.

    Args:
        untested: go on with a processor on which nothing was ever run.
    """
    _check_system()
    _check_processor(untested)
    _check_python()


def _check_system() -> None:
    system = platform.system()
    if system != "Linux":
        inside = "in WSL 2" if system == "Windows" else "in a Linux container or virtual machine (x86-64)"
        raise Refused(f"this is {system}, where neither vLLM's CPU build nor the gym's jail exists: use it {inside}")
    libc, version = platform.libc_ver()
    if libc != "glibc" or tuple(map(int, version.split(".")[:2])) < (2, 28):
        raise Refused(
            f"this Linux has {libc or 'no glibc'} {version}, and the wheels of torch and vLLM need glibc 2.28: "
            "use Debian 10, Ubuntu 20.04, RHEL 8 or later"
        )


def _check_processor(untested: bool) -> None:
    machine = platform.machine()
    if machine == "aarch64" and not untested:
        raise Refused(
            "this is aarch64: all packages resolve for it and none was ever run on it; use x86-64, or try it "
            "with `make env UNTESTED=1`"
        )
    if machine not in ("x86_64", "aarch64"):
        raise Refused(f"this is {machine}, for which torch and vLLM have no wheels: use x86-64")


def _check_python() -> None:
    if sys.version_info[:2] in PYTHONS:
        return
    found = [name for name in (f"python{a}.{b}" for a, b in reversed(PYTHONS)) if shutil.which(name)]
    remedy = f"PYTHON={found[0]}" if found else "PYTHON=/path/to/python3.12, which is not on PATH yet"
    raise Refused(
        f"{sys.executable} is Python {platform.python_version()} and verl needs 3.10 to 3.12: run make with {remedy}"
    )


def check_disk(folders: list[Path], gigabytes: float, remedy: str = REMEDY) -> None:
    """Refuse when a file system that holds one of `folders` has less than `gigabytes` (1e9 bytes) free."""
    for folder in folders:
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(existing).free / 1e9
        if free < gigabytes:
            raise Refused(
                f"{folder} has {free:.1f} GB free and the environment takes {gigabytes:.1f} GB: free some, or {remedy}"
            )
        if not os.access(existing, os.W_OK):
            raise Refused(f"{existing} cannot be written: name another folder with `make env VENV=/folder/venv`")
