# SPDX-License-Identifier: Apache-2.0
"""Measures references on a real GPU by the protocol of the published times. Not run without one."""

from __future__ import annotations

import statistics
from pathlib import Path

import torch

from benchmarks.clock.references import built

WARM_UPS, TRIALS, FILL_BYTES = 3, 100, 256 << 20


def measured_ms(path: Path, compiled: bool = False, trials: int = TRIALS) -> float:
    """Mean milliseconds of a forward by CUDA events, each behind a fill of 256 MB that empties L2."""
    fill = torch.empty(FILL_BYTES, dtype=torch.int8, device="cuda")
    times = []
    with torch.no_grad():
        model, inputs = built(path, "cuda")
        model = torch.compile(model) if compiled else model
        for number in range(WARM_UPS + trials):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            fill.fill_(42)
            start.record()
            model(*inputs)
            end.record()
            torch.cuda.synchronize()
            if number >= WARM_UPS:
                times.append(start.elapsed_time(end))
    return statistics.fmean(times)
