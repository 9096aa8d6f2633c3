# SPDX-License-Identifier: Apache-2.0
"""What an evaluation costs by `kernelgym.execute`: the kernels of bench_memory_checks.py and larger ones, in turns.

Run: python benchmarks/bench_execute.py [--evaluations 10] [--json FILE]. Times are processor time, mean of all
evaluations; ratios are to `interpreted`. Sources differ in a comment only, so that code of their kernels is made once,
in an evaluation that is not counted.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bench_memory_checks import CASES, PRODUCT, SOFTMAX, Case, elementwise, measured
from rich.console import Console
from rich.table import Table

from verl_kernel.env import GymOptions, LocalPool

MODES = ("interpreted", "both", "compiled")
LARGER = (
    elementwise("elementwise, 4 million", 1 << 22, 1024),
    Case(
        "softmax, 2048 rows of 1024", "x", "torch.softmax(x, -1)", "torch.randn(2048, 1024)", SOFTMAX,
        ("out = torch.empty_like(x)", "kernel[(2048,)](x, out, 1024, B=1024)", "return out"),
    ),
    Case(
        "product, 512 x 512 x 128", "x, y", "x @ y", "torch.randn(512, 128), torch.randn(128, 512)", PRODUCT,
        ("out = torch.empty(512, 512)", "kernel[(16, 16)](x, y, out, 512, 512, 128, A=32, B=32)", "return out"),
    ),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=10)
    parser.add_argument("--json", type=Path, help="also write the rows here")
    arguments = parser.parse_args()
    table, rows = Table("kernel", *(f"{mode}, ms" for mode in MODES), "both", "compiled", title="execute"), []
    pools = [LocalPool(GymOptions(device="cpu", execute=mode, run_timeout_s=120)) for mode in MODES]
    try:
        for case in (*CASES, *LARGER):
            spent = measured(case, pools, arguments.evaluations)
            rows.append({"kernel": case.name, **dict(zip(MODES, spent, strict=True))})
            ratios = [f"{one / spent[0]:.2f}" for one in spent[1:]]
            table.add_row(case.name, *(f"{one:.1f}" for one in spent), *ratios)
    finally:
        for pool in pools:
            pool.close()
    Console(width=120).print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
