# SPDX-License-Identifier: Apache-2.0
"""The clocks that `times` compares: each maps a call to milliseconds."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.gpu.setting import Setting

Clock = Callable[[Callable[[], object]], float]
OURS = ("device", "latency")
OTHERS = ("do_bench", "do_bench_cudagraph", "kernelbench")
_WARM_UPS, _SAMPLES = 5, 50
_FLUSH_BYTES = 256 << 20


def ours(setting: Setting) -> dict[str, Clock]:
    """The stopwatch's two times, as the median of 50 calls after five (of five, on a host that pretends)."""
    watch, samples = setting.stopwatch(), 5 if setting.pretend else _SAMPLES

    def device(call: Callable[[], object]) -> float:
        return _median(lambda: watch.device(call)[1], samples)

    def latency(call: Callable[[], object]) -> float:
        return _median(lambda: watch.latency(call)[1], samples)

    return {"device": device, "latency": latency}


def others() -> dict[str, Clock]:
    """Triton's two, and a loop as KernelBench times: flush and events queued together, the mean of 100."""
    from triton import testing

    return {
        "do_bench": lambda call: float(testing.do_bench(call, return_mode="median")),
        "do_bench_cudagraph": lambda call: float(testing.do_bench_cudagraph(call, return_mode="median")),
        "kernelbench": _kernelbench,
    }


def _median(sample: Callable[[], float], count: int) -> float:
    return statistics.median([sample() for _ in range(_WARM_UPS + count)][_WARM_UPS:])


def _kernelbench(call: Callable[[], object]) -> float:
    import torch

    flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    times = []
    for _ in range(_WARM_UPS + 2 * _SAMPLES):
        start, stop = _events()
        torch.cuda.synchronize()
        flush.fill_(1)
        start.record()
        call()
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop))
    return statistics.fmean(times[_WARM_UPS:])


def _events() -> tuple[Any, Any]:
    import torch

    event: Any = torch.cuda.Event
    return event(enable_timing=True), event(enable_timing=True)
