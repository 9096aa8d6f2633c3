# SPDX-License-Identifier: Apache-2.0
"""Times calls with CUDA events: the judge times references, the runner candidates, by the same protocols.

`device`: a flush of the L2 cache is queued, then event, call, event, without a wait in between, so that the host's
work hides behind the flush, as in KernelBench and triton.testing.do_bench. `latency`: the flush has ended and the
device is idle when the call begins, so that the host's work counts. `kernelgym`: after warm-up calls and without a
flush, as in KernelGYM's published times.

A pause in front of the flush keeps the device busy while the host queues the waits of `hold`; it is as long as they
were measured to take. Where a busy host takes longer all the same, the device would wait for the host inside the timed
span: the measurement is not begun, and prepared again with a longer pause.

Work on other streams counts in all protocols. It cannot begin before the start event (`GpuTimeline.hold`), and if the
device stays busy after the stop event, a third event, recorded once it is idle, counts instead.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from verl_kernel.errors import InfraError

# The GPU interface of a stopwatch: events on the default stream, and three ways to delay work.
#
# All functions are bound at construction, before a candidate is loaded, so that a candidate that replaces functions of
# torch does not affect it.


FLUSH_BYTES = 256 << 20
"""Bytes that a flush writes, as in KernelBench and triton.testing.do_bench; twice the L2 cache where that is more."""
_DEFAULT_L2_BYTES = 64 << 20
_POOL_PRIORITIES, _POOL_STREAMS = 8, 64
"""Numbers above those of torch: at most 4 priorities of 32 streams each (c10/cuda/CUDAStream.h)."""
_DEFAULT_CLOCK_KHZ = 2_000_000


class GpuTimeline:
    """The current CUDA device; create it only in a process that may initialise CUDA."""

    def __init__(self) -> None:
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self.l2_bytes = int(getattr(properties, "L2_cache_size", 0)) or _DEFAULT_L2_BYTES
        self.flush_bytes = max(FLUSH_BYTES, 2 * self.l2_bytes)
        self._scrub = torch.empty(self.flush_bytes, dtype=torch.uint8, device="cuda")
        self._stream = torch.cuda.default_stream()
        self._pool = _pool_streams()
        self._record, self._elapsed = torch.cuda.Event.record, torch.cuda.Event.elapsed_time
        self._hold = torch.cuda.Event.wait
        self._wait: Callable[[], None] = getattr(torch._C, "_cuda_synchronize")  # noqa: B009  only CUDA builds have it
        self._sleep: Callable[[int], None] = getattr(torch._C, "_cuda_sleep")  # noqa: B009
        self._clock_khz = int(getattr(properties, "clock_rate", 0)) or _DEFAULT_CLOCK_KHZ
        self._query: Callable[[Any], bool] = torch.cuda.Event.query
        self._host_s = time.perf_counter
        self._zero = torch.Tensor.zero_
        self._unpin = _unpinning()

    def event(self) -> Any:
        """Create an event that can be recorded repeatedly."""
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def record(self, event: Any) -> None:
        """Queue an event on the default stream."""
        self._record(event, self._stream)

    def elapsed_ms(self, start: Any, stop: Any) -> float:
        """Return the milliseconds between two recorded events."""
        return float(self._elapsed(start, stop))

    def wait(self) -> None:
        """Wait until the whole device is idle, not only a stream."""
        self._wait()

    def unpin(self) -> None:
        """Undo a program's reservation of L2 cache."""
        self._unpin()

    def flush(self) -> None:
        """Queue a write that evicts all useful data from the L2 cache."""
        self._zero(self._scrub)

    def stall(self, ms: float) -> None:
        """Queue a pause of the default stream."""
        self._sleep(int(ms * self._clock_khz))

    def reached(self, event: Any) -> bool:
        """Return whether the device has got to a recorded event."""
        return self._query(event)

    def host_ms(self) -> float:
        """Return the host's time in milliseconds."""
        return 1e3 * self._host_s()

    def hold(self, event: Any) -> None:
        """Delay work queued from now on, on any other stream of torch, until after `event`.

        Streams outside torch's pools wait for the default stream by CUDA's rules, unless they were created with a flag
        that torch does not expose.
        """
        for stream in self._pool:
            self._hold(event, stream)


def _pool_streams() -> list[Any]:
    """Return every stream that `torch.cuda.Stream` can return: it cycles through one pool per priority."""
    streams: dict[int, Any] = {}
    for priority in range(_POOL_PRIORITIES):
        for _ in range(_POOL_STREAMS):
            stream = torch.cuda.Stream(priority=-priority)  # type: ignore[no-untyped-call]
            streams.setdefault(stream.cuda_stream, stream)
    return list(streams.values())


def _unpinning() -> Callable[[], Any]:
    """Return `cuCtxResetPersistingL2Cache`, which undoes a reservation of L2; torch does not expose it."""
    with suppress(OSError, AttributeError):  # a driver without this function has no persisting lines either
        reset = ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache
        reset.restype = ctypes.c_int
        return reset
    return lambda: 0


Result = TypeVar("Result")
WARM_UPS = {"device": 0, "latency": 0, "kernelgym": 3}
"""The protocols, each with its number of untimed calls before a measurement."""
_LATE_MS, _LEAST_LATE_MS, _LATE_SHARE, _GAPS = 0.05, 0.01, 0.1, 11
_LOAD_FLUSHES = 64
_PAUSE_SHARE, _PAUSE_MS = 1.25, 0.05
"""Length of the pause: this share of what the waits take, and this beyond. With the flush, about 0.2 ms of a call's own
work are hidden."""
_LONGER = (1, 2, 4, 4, 4, 4)
"""Factors of the pause when the host was too slow for it, try by try."""


@dataclass(frozen=True)
class TimedForward(Generic[Result]):
    """One call to time."""

    run: Callable[[], Result]
    ready: Callable[[], object] = lambda: None
    """Called before `run`, outside the measured time."""
    keep: Callable[[Any], Any] = lambda result: None
    """Called with the result of `run`, outside the measured time; its return value is kept instead of the result."""


class Stopwatch:
    """Times calls on the current device.

    Args:
        gpu: timeline with the device's events; by default that of torch's current device.
    """

    def __init__(self, gpu: GpuTimeline | None = None) -> None:
        self._gpu = gpu or GpuTimeline()
        self._start, self._stop, self._late, self._paused = (self._gpu.event() for _ in range(4))
        self._gap = 0.0
        self._pause_ms = _PAUSE_MS + _PAUSE_SHARE * statistics.median(self._waits_ms() for _ in range(_GAPS))
        self._gap = statistics.median(late - stop for stop, late in (self._empty() for _ in range(_GAPS)))

    @property
    def l2_bytes(self) -> int:
        """Size of the L2 cache."""
        return self._gpu.l2_bytes

    @property
    def flush_bytes(self) -> int:
        """Bytes of device memory that this stopwatch holds."""
        return self._gpu.flush_bytes

    def device(self, call: Callable[[], Result]) -> tuple[Result, float]:
        """Return `call()` and its milliseconds, with a cold cache and the host's work hidden behind a queued flush."""
        return self._one("device", call)

    def latency(self, call: Callable[[], Result]) -> tuple[Result, float]:
        """Return `call()` and its milliseconds, with a cold cache on an idle device, the host's work included."""
        return self._one("latency", call)

    def many(self, protocol: str, forwards: Sequence[TimedForward[Any]]) -> tuple[list[Any], float]:
        """Time calls one after another.

        Args:
            protocol: one of `WARM_UPS`; the caller makes the warm-up calls.
            forwards: at least one call.

        Returns:
            The results of `keep`, and the mean milliseconds of a call. It is a mean, so that a call that does the work
            of later calls gains nothing.
        """
        results, spans = [], []
        for forward in forwards:
            forward.ready()
            result, span = self._time(protocol, forward.run)
            results.append(forward.keep(result))
            spans.append(span)
        return results, self._mean(spans)

    def wait(self) -> None:
        """Wait until the device is idle."""
        self._gpu.wait()

    def chill(self) -> None:
        """Flush the L2 cache and wait until the device is idle."""
        self._gpu.wait()
        self._gpu.unpin()
        self._gpu.flush()
        self._gpu.wait()

    def under_load(self, read: Callable[[], Result]) -> Result:
        """Return `read()`, called while the device is busy for some milliseconds."""
        for _ in range(_LOAD_FLUSHES):
            self._gpu.flush()
        reading = read()
        self._gpu.wait()
        return reading

    def _one(self, protocol: str, call: Callable[[], Result]) -> tuple[Result, float]:
        ((result,), milliseconds) = self.many(protocol, [TimedForward(call, keep=lambda result: result)])
        return result, milliseconds

    def _time(self, protocol: str, call: Callable[[], Result]) -> tuple[Result, tuple[float, float]]:
        self._prepare(protocol)
        result = call()
        self._gpu.record(self._stop)
        self._gpu.wait()
        self._gpu.record(self._late)  # also after work on other streams, which the stop event does not see
        self._gpu.wait()
        spans = (self._gpu.elapsed_ms(self._start, event) for event in (self._stop, self._late))
        return result, (next(spans), next(spans))

    def _prepare(self, protocol: str) -> None:
        """Bring the device into the protocol's state and record the start.

        Raises:
            InfraError: the host is too slow to queue a call while the device is busy.
        """
        if protocol == "device":
            if not any(self._is_hidden(factor * self._pause_ms) for factor in _LONGER):
                raise InfraError(
                    f"this machine's processors are too busy to time a call: {len(_LONGER)} times the GPU paused for "
                    f"up to {max(_LONGER) * self._pause_ms:.1f} ms, and waited for the host"
                )
            return
        if protocol == "latency":
            self.chill()
        else:
            self._gpu.wait()
        self._gpu.record(self._start)

    def _is_hidden(self, pause_ms: float) -> bool:
        """Prepare a call by `device`; return whether the flush, behind which it is queued, has not even begun."""
        self._gpu.wait()
        self._gpu.unpin()
        self._gpu.stall(pause_ms)
        self._gpu.record(self._paused)
        self._gpu.flush()
        self._gpu.record(self._start)
        self._gpu.hold(self._start)  # work on other streams must not begin before the start event
        return not self._gpu.reached(self._paused)

    def _waits_ms(self) -> float:
        """Return for how long the host queues the waits of `hold`."""
        self._gpu.wait()
        self._gpu.record(self._start)
        begun = self._gpu.host_ms()
        self._gpu.hold(self._start)
        return self._gpu.host_ms() - begun

    def _mean(self, spans: Sequence[tuple[float, float]]) -> float:
        """Return the mean time up to the stop events, or up to the device-wide wait if that ends much later.

        The device-wide wait takes some time even on an idle device; that time, measured around empty calls, is
        subtracted. The limit for "much later" shrinks with the number of calls.
        """
        stop = statistics.fmean(stop for stop, _ in spans)
        late = statistics.fmean(late for _, late in spans) - self._gap
        allowed = max(_LATE_MS / len(spans), _LEAST_LATE_MS) + _LATE_SHARE * stop
        return stop if late - stop <= allowed else late

    def _empty(self) -> tuple[float, float]:
        return self._time("latency", lambda: None)[1]


def warm(tensors: Sequence[torch.Tensor]) -> None:
    """Bring tensors into the L2 cache, as far as they fit, by writing them again."""
    for tensor in tensors:
        tensor.copy_(tensor.clone())
