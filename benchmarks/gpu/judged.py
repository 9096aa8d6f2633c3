# SPDX-License-Identifier: Apache-2.0
"""The kernels that a run has judged and timed, for the comparison with the simulated clock: `judged.jsonl`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from verl_kernel.env import EvalResult

FILE = "judged.jsonl"


def keep(out: str | Path, reference: str, kernel: str, result: EvalResult) -> None:
    """Write down a rewarded kernel that was timed; `kernel` as it would run on a CPU."""
    if result.rewarded and result.kernel_ms is not None:
        with (Path(out) / FILE).open("a") as file:
            file.write(json.dumps(row(reference, kernel, result.kernel_ms.median)) + "\n")


def row(reference: str, kernel: str, milliseconds: float) -> dict[str, Any]:
    """One line: the columns that `verl-kernel clock validate` reads."""
    return {"reference": reference, "kernel": kernel, "milliseconds": milliseconds}
