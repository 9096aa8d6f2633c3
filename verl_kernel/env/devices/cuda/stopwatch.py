# SPDX-License-Identifier: Apache-2.0
"""CUDA events around calls: the judge times references with it, the runner candidates, by the same protocols.

`device`: a flush of the L2 cache is queued, then event, call, event, and nothing waits in between, so that the host's
work hides behind the flush, as in KernelBench and triton.testing.do_bench. `latency`: the flush has ended and the
device is idle when the call begins, so that the host's work counts. `kernelgym`: as KernelGYM publishes its times, no
flush at all, after warm-up calls.

Work on other streams counts in all of them. It cannot begin before the start event (`GpuTimeline.hold`), and where
the device stays busy after the stop event, a third event, recorded once it is idle, counts instead.
"""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

# What a stopwatch needs of a GPU: events on the default stream, and three ways to hold work back.
#
# Everything is bound when this is made, before a candidate is loaded, so that replaced functions of torch do not reach
# it.


FLUSH_BYTES = 256 << 20
"""As much as KernelBench and triton.testing.do_bench write, or twice the L2 cache where that is more."""
_DEFAULT_L2_BYTES = 64 << 20
_POOL_PRIORITIES, _POOL_STREAMS = 8, 64
"""More than torch has: at most 4 priorities of 32 streams each (c10/cuda/CUDAStream.h)."""
_STALL_MS, _DEFAULT_CLOCK_KHZ = 0.3, 2_000_000


class GpuTimeline:
    """The current CUDA device; make it only in a process that may initialise CUDA."""

    def __init__(self) -> None:
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self.l2_bytes = int(getattr(properties, "L2_cache_size", 0)) or _DEFAULT_L2_BYTES
        self.flush_bytes = max(FLUSH_BYTES, 2 * self.l2_bytes)
        self._scrub = torch.empty(self.flush_bytes, dtype=torch.uint8, device="cuda")
        self._stream = torch.cuda.default_stream()
        self._others = _pool_streams()
        self._record, self._elapsed = torch.cuda.Event.record, torch.cuda.Event.elapsed_time
        self._hold = torch.cuda.Event.wait
        self._wait: Callable[[], None] = getattr(torch._C, "_cuda_synchronize")  # noqa: B009  only CUDA builds have it
        self._sleep: Callable[[int], None] = getattr(torch._C, "_cuda_sleep")  # noqa: B009
        self._stall_cycles = int(_STALL_MS * (int(getattr(properties, "clock_rate", 0)) or _DEFAULT_CLOCK_KHZ))
        self._zero = torch.Tensor.zero_
        self._unpin = _unpinning()

    def event(self) -> Any:
        """A new event that can be recorded again and again."""
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def record(self, event: Any) -> None:
        """Queue an event on the default stream."""
        self._record(event, self._stream)

    def elapsed_ms(self, start: Any, stop: Any) -> float:
        """Milliseconds between two recorded events."""
        return float(self._elapsed(start, stop))

    def wait(self) -> None:
        """Until the whole device is idle, not only a stream."""
        self._wait()

    def unpin(self) -> None:
        """Undo what a program set aside of the L2 cache."""
        self._unpin()

    def flush(self) -> None:
        """Queue a write that leaves nothing of use in the L2 cache."""
        self._zero(self._scrub)

    def stall(self) -> None:
        """Queue a pause of the default stream, in which `hold` gets done."""
        self._sleep(self._stall_cycles)

    def hold(self, event: Any) -> None:
        """Let what is queued from now on, on any other stream of torch's, begin only after `event`.

        Streams that torch does not pool wait for the default stream by CUDA's own rules, unless they were made with
        a flag for which torch has no name.
        """
        for stream in self._others:
            self._hold(event, stream)


def _pool_streams() -> list[Any]:
    """Every stream that `torch.cuda.Stream` can return: it hands out those of a pool per priority in turns."""
    found: dict[int, Any] = {}
    for priority in range(_POOL_PRIORITIES):
        for _ in range(_POOL_STREAMS):
            stream = torch.cuda.Stream(priority=-priority)  # type: ignore[no-untyped-call]
            found.setdefault(stream.cuda_stream, stream)
    return list(found.values())


def _unpinning() -> Callable[[], Any]:
    """`cuCtxResetPersistingL2Cache`, which undoes a program's set-aside of L2; torch has no name for it."""
    with suppress(OSError, AttributeError):  # a driver without it has no persisting lines either
        reset = ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache
        reset.restype = ctypes.c_int
        return reset
    return lambda: 0


Result = TypeVar("Result")
WARM_UPS = {"device": 0, "latency": 0, "kernelgym": 3}
"""The protocols, and the calls that come before each measurement and are not timed."""
_LATE_MS, _LEAST_LATE_MS, _LATE_SHARE, _GAPS = 0.05, 0.01, 0.1, 11
_LOAD_FLUSHES = 64


@dataclass(frozen=True)
class Forward(Generic[Result]):
    """One call to time."""

    run: Callable[[], Result]
    ready: Callable[[], object] = lambda: None
    """Done before, outside the time."""
    keep: Callable[[Any], Any] = lambda result: None
    """Done after, outside the time; what it returns is kept instead of the result."""


class Stopwatch:
    """Times calls on the current device.

    Args:
        gpu: its events; those of torch's current device by default.
    """

    def __init__(self, gpu: GpuTimeline | None = None) -> None:
        self._gpu = gpu or GpuTimeline()
        self._start, self._stop, self._late = (self._gpu.event() for _ in range(3))
        self._gap = 0.0
        self._gap = statistics.median(late - stop for stop, late in (self._empty() for _ in range(_GAPS)))

    @property
    def l2_bytes(self) -> int:
        """Size of the L2 cache."""
        return self._gpu.l2_bytes

    @property
    def flush_bytes(self) -> int:
        """Device memory that this stopwatch holds."""
        return self._gpu.flush_bytes

    def device(self, call: Callable[[], Result]) -> tuple[Result, float]:
        """What `call()` returns and its milliseconds, cold, the host's work hidden behind a queued flush."""
        return self._one("device", call)

    def latency(self, call: Callable[[], Result]) -> tuple[Result, float]:
        """What `call()` returns and its milliseconds, cold, on an idle device, the host's work included."""
        return self._one("latency", call)

    def many(self, protocol: str, forwards: Sequence[Forward[Any]]) -> tuple[list[Any], float]:
        """Time calls one after another.

        Args:
            protocol: one of `WARM_UPS`; the warm-up calls are the caller's.
            forwards: at least one.

        Returns:
            What was kept of each, and the mean milliseconds of one. A mean, so that a call which does the work of
            later ones gains nothing.
        """
        kept, spans = [], []
        for forward in forwards:
            forward.ready()
            result, span = self._time(protocol, forward.run)
            kept.append(forward.keep(result))
            spans.append(span)
        return kept, self._mean(spans)

    def wait(self) -> None:
        """Until the device is idle."""
        self._gpu.wait()

    def chill(self) -> None:
        """Leave nothing of use in the L2 cache and nothing running on the device."""
        self._gpu.wait()
        self._gpu.unpin()
        self._gpu.flush()
        self._gpu.wait()

    def under_load(self, read: Callable[[], Result]) -> Result:
        """What `read()` returns while the device is busy for some milliseconds."""
        for _ in range(_LOAD_FLUSHES):
            self._gpu.flush()
        found = read()
        self._gpu.wait()
        return found

    def _one(self, protocol: str, call: Callable[[], Result]) -> tuple[Result, float]:
        ((result,), milliseconds) = self.many(protocol, [Forward(call, keep=lambda result: result)])
        return result, milliseconds

    def _time(self, protocol: str, call: Callable[[], Result]) -> tuple[Result, tuple[float, float]]:
        self._prepare(protocol)
        result = call()
        self._gpu.record(self._stop)
        self._gpu.wait()
        self._gpu.record(self._late)
        self._gpu.wait()
        spans = (self._gpu.elapsed_ms(self._start, event) for event in (self._stop, self._late))
        return result, (next(spans), next(spans))

    def _prepare(self, protocol: str) -> None:
        """Bring the device into the protocol's state and record the start."""
        if protocol == "latency":
            self.chill()
            self._gpu.record(self._start)
            return
        self._gpu.wait()
        if protocol == "device":
            self._gpu.unpin()
            self._gpu.stall()
            self._gpu.flush()
        self._gpu.record(self._start)
        if protocol == "device":
            self._gpu.hold(self._start)

    def _mean(self, spans: Sequence[tuple[float, float]]) -> float:
        """Mean of the calls up to their stop events, or up to the device-wide wait where that ends much later.

        The device-wide wait takes a while even if nothing is left to wait for; that, measured around empty calls, is
        taken off. How much later it may end shrinks with the number of calls.
        """
        stop = statistics.fmean(stop for stop, _ in spans)
        late = statistics.fmean(late for _, late in spans) - self._gap
        allowed = max(_LATE_MS / len(spans), _LEAST_LATE_MS) + _LATE_SHARE * stop
        return stop if late - stop <= allowed else late

    def _empty(self) -> tuple[float, float]:
        return self._time("latency", lambda: None)[1]


def warm(tensors: Sequence[torch.Tensor]) -> None:
    """Leave tensors in the L2 cache, as far as they fit, by writing them once more."""
    for tensor in tensors:
        tensor.copy_(tensor.clone())
