# SPDX-License-Identifier: Apache-2.0
"""Whether references in KernelBench's form evaluate at their true size, and how long that takes.

    python benchmarks/bench_true_size.py KERNELBENCH_DIR/level1 --every 10

Each reference is judged against a copy of itself: right, and as fast as itself to the last digit. Prints a line for
each and a summary for the folder.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path

from verl_kernel.env import EvalResult, EvalStatus, GymOptions, LocalPool, Task
from verl_kernel.errors import TaskError


def main() -> None:
    """Evaluate the references of the folders named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--every", type=int, default=1, help="take every n-th file")
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    gym = GymOptions(device="cpu", true_size="auto", static_check="off", decoys="record", ablation=False)
    with LocalPool(gym, options.seed) as pool:
        for folder in options.folders:
            _folder(Path(folder), pool, options.every)


def _folder(folder: Path, pool: LocalPool, every: int) -> None:
    files = sorted(folder.glob("*.py"), key=lambda path: int((re.match(r"\d+", path.name) or ["0"])[0]))[::every]
    if not files:
        sys.exit(f"{folder} holds no Python files: name a folder of references")
    done, seconds = 0, []
    for path in files:
        start = time.perf_counter()
        text, is_charged = _line(path, pool)
        seconds.append(time.perf_counter() - start)
        done += is_charged
        print(f"{path.stem[:44]:44} {seconds[-1]:6.2f} s  {text}", flush=True)
    median = sorted(seconds)[len(seconds) // 2]
    print(f"{folder}: {done} of {len(files)} evaluate; {median:.2f} s (median), {max(seconds):.2f} s (max)")


def _line(path: Path, pool: LocalPool) -> tuple[str, bool]:
    source = path.read_text()
    copied = re.sub(r"\bModel\b", "ModelNew", source)
    try:
        (result,) = pool.evaluate_many([(Task(source, path.stem), copied, path.name)])
    except TaskError as exc:
        return str(exc), False
    return _described(result), result.status is EvalStatus.OK and result.speedup is not None


def _described(result: EvalResult) -> str:
    why = result.error.message if result.error else result.true_size.unknown if result.true_size else None
    speedup = "no time" if result.speedup is None else f"{result.speedup:.3f}x {result.reference_ms.median:.3f} ms"  # type: ignore[union-attr]
    unpriced = f" unpriced: {', '.join(result.unpriced_ops)}" if result.unpriced_ops else ""
    size = "reduced" if result.true_size else "as it is"
    return f"{result.status.value} {size} {speedup}{unpriced} {why or ''}"


if __name__ == "__main__":
    main()
