# SPDX-License-Identifier: Apache-2.0
"""How far the simulated clock is from published times of Triton kernels.

Run: python benchmarks/bench_candidates.py PUBLISHED [--gpu h100] [--kernels NAME,NAME] [--out FILE.jsonl] [--jobs 2]

PUBLISHED is the folder with the unpacked packages of `benchmarks/published/packages.txt` (CONTRIBUTING.md says how to
fetch them). The times are the facts of `benchmarks/clock/triton_times.csv`, to which nothing was fitted. Each kernel is
judged as `verl-kernel eval` judges, at its own size, without a GPU; `--out` keeps what was found, and the same command
goes on there. Times that Python needs, not the GPU, are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from rich.console import Console  # noqa: E402  the path comes first

from benchmarks.clock.candidates import PublishedTime, measured_kernel, read_times  # noqa: E402
from verl_kernel.bench.clock_table import agreement_table, kernel_table  # noqa: E402
from verl_kernel.bench.measured import ComparedKernel, by_bound, judged  # noqa: E402
from verl_kernel.env import GymOptions, LocalPool  # noqa: E402

TARGETS = {"a100": "sm_80", "h100": "sm_90", "h200": "sm_90"}
"""By GPU of the table: what its kernels are compiled for."""
WORST = 10
Rows = dict[tuple[str, str], ComparedKernel | str]
"""By GPU and name: a kernel with its times, or why it has none."""


def main() -> int:
    """Print the agreement by GPU, kernel and bound; 1 if a kernel has no predicted time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("published", type=Path, help="folder of the unpacked packages")
    parser.add_argument("--gpu", help="only times of this GPU")
    parser.add_argument("--kernels", default="", help="only these kernels")
    parser.add_argument("--out", type=Path, help="JSON lines of what was found")
    parser.add_argument("--jobs", type=int, default=2, help="judges")
    options = parser.parse_args()
    wanted = [name for name in options.kernels.split(",") if name]
    times = [
        row for row in read_times()
        if not row.is_host_floor and options.gpu in (None, row.gpu) and (not wanted or row.kernel in wanted)
    ]  # fmt: skip
    rows = _kept(options.out)
    for row, found in _judged([row for row in times if (row.gpu, row.name) not in rows], options):
        rows[row.gpu, row.name] = found
        _keep(options.out, row, found)
    _print(times, rows)
    return int(any(isinstance(rows[row.gpu, row.name], str) for row in times))


def _judged(
    times: Sequence[PublishedTime], options: argparse.Namespace
) -> Iterator[tuple[PublishedTime, ComparedKernel | str]]:
    for gpu in sorted({row.gpu for row in times}):
        gym = GymOptions(
            device="cpu", compile_for=TARGETS[gpu], gpu_profile=gpu, true_size="auto", correctness_trials=1,
            float32="tf32", num_judges=options.jobs,
            reference_timeout_s=600,
        )  # fmt: skip
        of_gpu = [row for row in times if row.gpu == gpu]
        with LocalPool(gym, seed=0) as pool:
            kernels = [measured_kernel(row, options.published) for row in of_gpu]
            yield from zip(of_gpu, judged(pool, kernels, options.jobs), strict=True)


def _kept(path: Path | None) -> Rows:
    if path is None or not path.exists():
        return {}
    rows: Rows = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        found = row["found"]
        rows[row["gpu"], row["name"]] = found if isinstance(found, str) else ComparedKernel(**found)
    return rows


def _keep(path: Path | None, row: PublishedTime, found: ComparedKernel | str) -> None:
    if path is not None:
        kept = {"gpu": row.gpu, "name": row.name, "found": found if isinstance(found, str) else asdict(found)}
        with path.open("a") as file:
            file.write(json.dumps(kept) + "\n")


def _print(times: Sequence[PublishedTime], rows: Rows) -> None:
    console = Console(width=None if sys.stdout.isatty() else 200)
    found = {(row.gpu, row.name): rows[row.gpu, row.name] for row in times}
    compared_rows = {key: one for key, one in found.items() if isinstance(one, ComparedKernel)}
    everything = list(compared_rows.values())
    by_gpu = {gpu: [one for (of, _), one in compared_rows.items() if of == gpu] for gpu in TARGETS}
    by_kernel: dict[str, list[ComparedKernel]] = {}
    for row in times:
        if (one := compared_rows.get((row.gpu, row.name))) is not None:
            by_kernel.setdefault(f"{row.gpu}, {row.kernel}", []).append(one)
    console.print(agreement_table("by GPU: predicted over published", {"all": everything, **by_gpu}))
    console.print(agreement_table("by kernel", by_kernel))
    console.print(agreement_table("by bound", by_bound(everything)))
    console.print(kernel_table(everything, WORST))
    for (gpu, name), one in found.items():
        if isinstance(one, str):
            console.print(f"{gpu}, {name}: {one}", soft_wrap=True, markup=False)


if __name__ == "__main__":
    sys.exit(main())
