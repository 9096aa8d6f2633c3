# SPDX-License-Identifier: Apache-2.0
"""Lets programs written for CUDA run on CPU tensors: for them, `cuda` means the CPU.

Only code outside the standard library, the installed packages and this package sees a CUDA device. Libraries keep
seeing the CPU, because torch itself branches on the device.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import wraps
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext

from verl_kernel.env.devices.op_recorder import WHOLE, whole
from verl_kernel.env.tamper.tripwire import WIRE, program_asks

CAPABILITY = (9, 0)
"""Compute capability shown to programs."""
PROPERTIES: dict[str, Any] = {
    "name": "CPU in place of a GPU",
    "major": CAPABILITY[0],
    "minor": CAPABILITY[1],
    "multi_processor_count": 132,
    "warp_size": 32,
    "max_threads_per_multi_processor": 2048,
    "regs_per_multiprocessor": 65536,
    "shared_memory_per_block": 49152,
    "shared_memory_per_block_optin": 232448,
    "shared_memory_per_multiprocessor": 233472,
    "total_memory": 80 * 1024**3,
    "L2_cache_size": 50 * 1024**2,
}
"""Device properties shown to programs (those of an H100)."""

_CUDA_NAME = re.compile(r"cuda(:\d+)?")
_GET_DEVICE = torch.Tensor.device.__get__
_IS_CUDA = torch.Tensor.is_cuda.__get__  # type: ignore[attr-defined]
_BULK_READS = tuple(
    getattr(torch.Tensor, name) for name in "numpy __array__ tolist apply_ map_ map2_ __dlpack__ __reduce_ex__".split()
)
_STORAGES = (torch.Tensor.untyped_storage, torch.Tensor.storage)
_SPECIAL = {_GET_DEVICE, _IS_CUDA, torch.device, torch.Tensor.cuda, *_BULK_READS, *_STORAGES, *WHOLE}
"""Functions that are more than called with translated arguments."""
_NAMES = (str, torch.device)


class Event:
    """Replacement of a CUDA event that reads the host clock."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._time = 0.0

    def record(self, stream: Any = None) -> None:
        """Store the present time."""
        self._time = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        """Return the milliseconds from this event to `end`."""
        return (end._time - self._time) * 1e3

    def synchronize(self) -> None:
        """Do nothing: no work is asynchronous."""

    def query(self) -> bool:
        """Return True: all work has finished."""
        return True

    wait = record


class Stream:
    """Replacement of a CUDA stream; there is only one."""

    cuda_stream = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None: ...

    def synchronize(self) -> None:
        """Do nothing: no work is asynchronous."""

    def wait_stream(self, stream: Any) -> None:
        """Do nothing: no work is asynchronous."""

    def wait_event(self, event: Any) -> None:
        """Do nothing: no work is asynchronous."""


def _nothing(*args: Any, **kwargs: Any) -> None: ...


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "is_available": lambda: True,
    "device_count": lambda: 1,
    "is_bf16_supported": lambda *args, **kwargs: True,
    "current_device": lambda: 0,
    "get_device_name": lambda device=None: PROPERTIES["name"],
    "get_device_capability": lambda device=None: CAPABILITY,
    "get_device_properties": lambda device=None: SimpleNamespace(**PROPERTIES),
    "is_current_stream_capturing": lambda: False,
    "current_stream": Stream,
    "default_stream": Stream,
    "stream": nullcontext,
    "device": nullcontext,
    "device_of": nullcontext,
    "memory_allocated": lambda device=None: 0,
    "max_memory_allocated": lambda device=None: 0,
    **dict.fromkeys(("init", "synchronize", "set_device", "set_stream", "empty_cache"), _nothing),
    **dict.fromkeys(("reset_peak_memory_stats", "ipc_collect"), _nothing),
}
_ACCELERATOR: dict[str, Callable[..., Any]] = {
    "is_available": lambda: True,
    "device_count": lambda: 1,
    "current_accelerator": lambda check_available=False: torch.device("cuda"),
    "current_device_index": lambda: 0,
    "device_index": nullcontext,
    "synchronize": _nothing,
}
"""Replacements of functions of `torch.accelerator`."""
INTERFACE = SimpleNamespace(**_FUNCTIONS, Event=Event, Stream=Stream)
"""Triton's device interface: the part of `torch.cuda` that benchmarks use."""


def _may_name_device(value: Any) -> bool:
    return isinstance(value, _NAMES)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    return "cpu" if isinstance(value, str) and _CUDA_NAME.fullmatch(value) else value


class CudaAsCpu(TorchFunctionMode):
    """Replaces CUDA devices by the CPU in arguments of torch functions, and reports when the host reads tensors."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if kwargs or func in _SPECIAL or any(map(_may_name_device, args)):
            return self._translated(func, args, kwargs or {})
        return func(*args)  # nearly every call: an evaluation makes more than a thousand

    def _translated(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if func in (_GET_DEVICE, _IS_CUDA):
            device = func(*args)
            if not program_asks(3):
                return device
            return True if func == _IS_CUDA else _shown(device)
        if func is torch.device:  # only a name, compared with `tensor.device`
            return func(*args, **kwargs)
        if func is torch.Tensor.cuda:
            return args[0]
        if func in _BULK_READS or (func in _STORAGES and program_asks(3)):
            WIRE.read_in_bulk(args[0], f"Tensor.{func.__name__}")
        named = {key: _on_cpu(value) for key, value in kwargs.items() if key != "pin_memory"}
        return whole(func, args, named) if func in WHOLE else func(*map(_on_cpu, args), **named)


def _shown(device: torch.device) -> torch.device:
    return torch.device("cuda", 0) if device.type == "cpu" else device


def _for_programs(original: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        return (replacement if program_asks() else original)(*args, **kwargs)

    return function


_thread = threading.local()
_lock = threading.Lock()
_installed = False


def install() -> None:
    """Let `cuda` mean the CPU for programs run by the calling thread (once per thread, then free)."""
    with _lock:
        _patch_modules()
    if not getattr(_thread, "ready", False):
        CudaAsCpu().__enter__()  # type: ignore[no-untyped-call]
        _thread.ready = True


def _patch_modules() -> None:
    global _installed
    if _installed:
        return
    for name, replacement in _FUNCTIONS.items():
        setattr(torch.cuda, name, _for_programs(getattr(torch.cuda, name), replacement))
    for name, replacement in _ACCELERATOR.items():
        setattr(torch.accelerator, name, _for_programs(getattr(torch.accelerator, name), replacement))
    torch.cuda.Event = Event  # type: ignore[assignment,misc]
    torch.cuda.Stream = Stream  # type: ignore[assignment,misc]
    _wrap_device_context()
    _installed = True


def _wrap_device_context() -> None:
    """Convert the device of `with torch.device("cuda")` here, since it is added after `CudaAsCpu` has run."""
    original = DeviceContext.__init__

    @wraps(original)
    def convert(self: DeviceContext, device: Any) -> None:
        original(self, _on_cpu(device))

    DeviceContext.__init__ = convert  # type: ignore[method-assign]
