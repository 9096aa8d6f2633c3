# SPDX-License-Identifier: Apache-2.0
"""CUDA events around one call on a cold, idle device: the judge times references with it, the runner candidates.

Everything it calls is bound when it is made, before a candidate is loaded, so that replaced functions of torch do
not reach it. The time is that of the whole call: what the host does between launches counts, on both sides alike.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")
_DEFAULT_L2_BYTES = 64 << 20
_LATE_MS, _LATE_SHARE = 0.05, 0.1


class Stopwatch:
    """Times calls on the current CUDA device; make it only in a process that may initialise CUDA."""

    def __init__(self) -> None:
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self.l2_bytes = int(getattr(properties, "L2_cache_size", 0)) or _DEFAULT_L2_BYTES
        self._scrub = torch.empty(2 * self.l2_bytes, dtype=torch.uint8, device="cuda")
        self._start, self._stop, self._late = _event(), _event(), _event()
        self._record, self._elapsed = torch.cuda.Event.record, torch.cuda.Event.elapsed_time
        self._stream = torch.cuda.current_stream()
        self._wait: Callable[[], None] = getattr(torch._C, "_cuda_synchronize")  # noqa: B009  only CUDA builds have it
        self._zero = torch.Tensor.zero_
        self._unpin = _unpinning()

    def chill(self) -> None:
        """Leave nothing of use in the L2 cache and nothing running on the device."""
        self._wait()
        self._unpin()
        self._zero(self._scrub)
        self._wait()

    def time(self, call: Callable[[], Result]) -> tuple[Result, float]:
        """What `call()` returns and its milliseconds, work on other streams included."""
        self._record(self._start, self._stream)
        result = call()
        self._record(self._stop, self._stream)
        self._wait()  # the device, not a stream
        self._record(self._late, self._stream)
        self._wait()
        stop = float(self._elapsed(self._start, self._stop))
        late = float(self._elapsed(self._start, self._late))
        return result, stop if late - stop < _LATE_MS + _LATE_SHARE * stop else late

    def wait(self) -> None:
        """Until the device is idle."""
        self._wait()

    def copy_ms(self, tensors: Sequence[torch.Tensor]) -> float:
        """Median wall milliseconds of three copies of `tensors` to the host."""
        hosts = [tensor.to("cpu", copy=True) for tensor in tensors]
        walls = []
        for _ in range(3):
            self._wait()
            start = perf_counter()
            for host, tensor in zip(hosts, tensors, strict=True):
                host.copy_(tensor)
            walls.append((perf_counter() - start) * 1e3)
        return sorted(walls)[1]


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _unpinning() -> Callable[[], Any]:
    """`cuCtxResetPersistingL2Cache`, which undoes a program's set-aside of L2; torch has no name for it."""
    with suppress(OSError, AttributeError):  # a driver without it has no persisting lines either
        reset = ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache
        reset.restype = ctypes.c_int
        return reset
    return lambda: 0
