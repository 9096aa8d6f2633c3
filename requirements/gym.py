# SPDX-License-Identifier: Apache-2.0
"""What the gym alone needs (gym.txt), for GPU machines without a package index and without verl.

`gym.py check` says what this Python lacks. `gym.py fetch DIR --python 3.12` downloads the wheels of all that but
torch, triton and NumPy, which belong to the machine, for another Python. `gym.py carry DIR TARGET` puts those of them
that this Python lacks into a folder for PYTHONPATH.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

GYM = Path(__file__).with_name("gym.txt")
OF_THE_MACHINE = ("torch", "triton", "numpy")
MODULES = {"nvidia-ml-py": "pynvml"}
"""Modules of packages that have another name."""
OLD_PYTEST = ("exceptiongroup", "tomli")
"""What pytest needs before Python 3.11; pip reads such conditions for the Python that it runs under."""
PLATFORMS = ("manylinux1", "manylinux2010", "manylinux2014", "manylinux_2_17", "manylinux_2_28")


def requirements() -> dict[str, str]:
    """Lines of gym.txt by package."""
    lines = [line for line in GYM.read_text().splitlines() if line and not line.startswith("#")]
    return {line.partition(">=")[0]: line for line in lines}


def lacking() -> list[str]:
    """Requirements that this Python does not meet."""
    return [line for name, line in requirements().items() if not _is_met(name, line.partition(">=")[2])]


def _is_met(name: str, least: str) -> bool:
    if importlib.util.find_spec(MODULES.get(name, name)) is None:
        return False
    try:
        return _numbers(importlib.metadata.version(name)) >= _numbers(least)
    except importlib.metadata.PackageNotFoundError:  # a build of one's own, or triton from another distribution
        return True


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.match(r"[\d.]*", version)[0].split(".") if part]  # type: ignore[index]


def fetch(folder: Path, python: str, machine: str) -> None:
    """Download wheels for a Python like `3.12` on a machine like `x86_64`."""
    wanted = [line for name, line in requirements().items() if name not in OF_THE_MACHINE]
    if _numbers(python) < [3, 11]:
        wanted += OLD_PYTEST
    places = [word for platform in PLATFORMS for word in ("--platform", f"{platform}_{machine}")]
    target = ["--python-version", python, "--implementation", "cp", *places]
    _pip("download", "--only-binary=:all:", *target, "--dest", str(folder), *wanted)


def carry(wheels: Path, target: Path) -> None:
    """Install from `wheels` into `target` what this Python lacks, and what that needs."""
    if missing := [line for line in lacking() if line.partition(">=")[0] not in OF_THE_MACHINE]:
        _pip("install", "--no-index", "--find-links", str(wheels), "--target", str(target), "--no-compile", *missing)


def _pip(verb: str, *arguments: str) -> None:
    command = [sys.executable, "-m", "pip", verb, "--quiet", "--disable-pip-version-check", *arguments]
    if subprocess.run(command).returncode:
        sys.exit(f"pip {verb} failed: see above; `make gpu-wheels PY=<version>` fetches the wheels for another Python")


def check() -> None:
    """End with a sentence unless all is there."""
    if missing := lacking():
        sys.exit(
            f"the gym needs {', '.join(missing)}, which {sys.executable} lacks: install them, or carry their wheels "
            "(`make gpu-wheels`, then WHEELS=<folder>)"
        )


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("check")
    download = verbs.add_parser("fetch")
    download.add_argument("folder", type=Path)
    download.add_argument("--python", default="3.12")
    download.add_argument("--machine", default="x86_64")
    carried = verbs.add_parser("carry")
    carried.add_argument("wheels", type=Path)
    carried.add_argument("target", type=Path)
    options = parser.parse_args()
    if options.verb == "fetch":
        fetch(options.folder, options.python, options.machine)
    elif options.verb == "carry":
        carry(options.wheels, options.target)
    else:
        check()


if __name__ == "__main__":
    main()
