# SPDX-License-Identifier: Apache-2.0
"""How many references of a folder in KernelBench's form can be judged on a CPU: at reduced sizes, or as they are.

    python benchmarks/bench_shrinking.py KERNELBENCH_DIR/level1

Prints a line for each reference (sizes, true and reduced cost, seconds of deciding) and a summary for the folder.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path

from verl_kernel.env.backends import resolve_device
from verl_kernel.env.task import Task
from verl_kernel.env.true_size import dataless
from verl_kernel.env.true_size.shrinking import Shrunk, shrink
from verl_kernel.errors import TaskError


def main() -> None:
    """Shrink every reference of the folders named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--seed", default="bench", help="secret that the sizes are drawn from")
    options = parser.parse_args()
    start = time.perf_counter()
    dataless.load()
    print(f"torch's shape functions: {time.perf_counter() - start:.1f} s")
    for folder in options.folders:
        _folder(Path(folder), options.seed.encode())


def _folder(folder: Path, secret: bytes) -> None:
    device = resolve_device("cpu")
    device.setup()
    files = sorted(folder.glob("*.py"), key=lambda path: int((re.match(r"\d+", path.name) or ["0"])[0]))
    if not files:
        sys.exit(f"{folder} holds no Python files: name a folder of references")
    done, seconds = 0, []
    for path in files:
        start = time.perf_counter()
        text, shrunk = _line(path, device, secret)
        seconds.append(time.perf_counter() - start)
        done += shrunk
        print(f"{path.stem[:44]:44} {seconds[-1]:6.2f} s  {text}", flush=True)
    median = sorted(seconds)[len(seconds) // 2]
    print(
        f"{folder}: {done} of {len(files)} shrink; deciding takes {median:.2f} s (median), {max(seconds):.2f} s (max)"
    )


def _line(path: Path, device: object, secret: bytes) -> tuple[str, bool]:
    try:
        found = shrink(Task(path.read_text(), path.stem), device, secret)  # type: ignore[arg-type]
    except TaskError as exc:
        return str(exc), False
    return _sizes(found), True


def _sizes(found: Shrunk) -> str:
    true = f"{found.true.traffic / 1e9:.2f} GB {found.true.flops / 1e9:.1f} GFLOP"
    copies = [
        f"{copy.dry.traffic / 1e6:.1f} MB {copy.dry.flops / 1e6:.1f} MFLOP {_mapping(copy.sizes)}"
        for copy in found.copies
    ]
    return f"{true} -> " + " | ".join(copies)


def _mapping(sizes: object) -> str:
    assert isinstance(sizes, dict)
    return " ".join(f"{old}:{new}" for old, new in sizes.items())


if __name__ == "__main__":
    main()
