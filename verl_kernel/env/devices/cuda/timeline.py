# SPDX-License-Identifier: Apache-2.0
"""What a stopwatch needs of a GPU: events on the default stream, and three ways to hold work back.

Everything is bound when this is made, before a candidate is loaded, so that replaced functions of torch do not reach
it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

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
