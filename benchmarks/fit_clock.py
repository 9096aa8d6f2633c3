# SPDX-License-Identifier: Apache-2.0
"""Fits the fitted constants of the simulated clock to level 1 alone, and says how far that is from the committed ones.

Run: python benchmarks/fit_clock.py KERNELBENCH_DIR TIMES.json [--out FILE.json]

KERNELBENCH_DIR and TIMES.json are those of bench_clock.py. The search starts from one value for all shares, one for
waits and one for instructions, so it knows nothing of the committed values. Other levels are predicted with both.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from rich.console import Console  # noqa: E402  the path comes first

from benchmarks.bench_clock import LEFT_OUT  # noqa: E402
from benchmarks.clock.fitting import Clock, fit, fitted_names  # noqa: E402
from benchmarks.clock.references import read_published  # noqa: E402
from verl_kernel.env.gpus import GPUS  # noqa: E402
from verl_kernel.env.machine.constants import CONSTANTS, constant  # noqa: E402
from verl_kernel.env.machine.machine import MachineModel  # noqa: E402
from verl_kernel.figures.agreement import TimeAgreement  # noqa: E402

LEVEL = "level1"


def summary(clocks: Mapping[str, Clock]) -> dict[str, Any]:
    """Fit on level 1 and compare.

    Returns:
        `constants`: by name the committed and the fitted value and how many programs of level 1 it moves; `agreement`:
        by level, for both sets of values, Spearman, median ratio and shares within 1.25, 1.5 and 2; `unmoved`: those of
        all constants of the model that move no program of any level.
    """
    names = fitted_names()
    committed = {name: constant(name) for name in names}
    fitted = fit(clocks[LEVEL], names)
    constants = {
        name: {
            "committed": committed[name],
            "fitted": float(f"{fitted[name]:.3g}"),
            "moves": clocks[LEVEL].moved(name, committed),
        }
        for name in names
    }
    both = {"committed": committed, "fitted": fitted}
    agreement = {
        level: {kind: _agreement(clock, values) for kind, values in both.items()} for level, clock in clocks.items()
    }
    every = {name: constant(name) for name in CONSTANTS}
    unmoved = [name for name in every if not any(clock.moved(name, every) for clock in clocks.values())]
    return {"constants": constants, "agreement": agreement, "unmoved": unmoved}


def _agreement(clock: Clock, values: Mapping[str, float]) -> dict[str, Any]:
    pairs = zip(clock.times(values), (program.ms for program in clock.programs), strict=True)
    found = TimeAgreement.of(list(pairs))
    return {
        "programs": found.count,
        "spearman": round(found.spearman, 3),
        "median_ratio": round(found.median_ratio, 3),
        "within": [round(share, 3) for share in found.within],
    }


def tables(found: Mapping[str, Any]) -> str:
    """Markdown: the constants, then the agreement of both sets by level."""
    lines = ["| name | committed | fitted | ratio | programs moved |", "|---|---|---|---|---|"]
    for name, one in found["constants"].items():
        ratio = one["fitted"] / one["committed"]
        lines.append(f"| `{name}` | {one['committed']:g} | {one['fitted']:g} | {ratio:.2f} | {one['moves']} |")
    head = "| level | constants | programs | Spearman | median ratio | within 1.25x | within 1.5x | within 2x |"
    lines += ["", head, "|" + "---|" * 8]
    for level, kinds in found["agreement"].items():
        name = f"{level.removeprefix('level')}, {'fitted on' if level == LEVEL else 'not fitted on'}"
        for kind, one in kinds.items():
            shares = " | ".join(f"{100 * share:.1f} %" for share in one["within"])
            figures = f"{one['programs']} | {one['spearman']:.3f} | {one['median_ratio']:.3f}"
            lines.append(f"| {name} | {kind} | {figures} | {shares} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print both tables, and keep what they say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="KernelBench's programs")
    parser.add_argument("times", type=Path, help="published times, JSON")
    parser.add_argument("--out", type=Path, help="write the values and the agreement, JSON")
    options = parser.parse_args()
    machine = MachineModel(GPUS["h100"], convolution_tf32=True)  # torch's defaults
    programs = read_published(options.folder, options.times, LEFT_OUT)
    levels = sorted({program.level for program in programs})
    found = summary({level: Clock([one for one in programs if one.level == level], machine) for level in levels})
    console = Console(width=120)
    console.print(tables(found), markup=False, highlight=False)
    console.print(f"no program sees a change of 20 % of: {', '.join(found['unmoved'])}", markup=False, highlight=False)
    if options.out:
        options.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
