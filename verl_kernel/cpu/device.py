# SPDX-License-Identifier: Apache-2.0
"""The `torch.<device>` namespace verl asks a platform for: `torch.cpu` plus what it lacks next to `torch.cuda`.

Memory is the machine's (bytes), read through psutil.
"""

from __future__ import annotations

from typing import Any

import psutil
import torch
from torch.cpu import (  # noqa: F401 - re-exported: verl looks them up on this module
    Stream,
    current_stream,
    is_available,
    set_device,
    stream,
    synchronize,
)


class Event:
    """A marker on a stream; on a CPU every operation is done when its call returns."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def record(self, stream: Any = None) -> None:
        """Mark nothing: there is no queue."""

    def wait(self, stream: Any = None) -> None:
        """Return at once."""

    def synchronize(self) -> None:
        """Return at once."""


def device_count() -> int:
    """Return 1: a process computes on one CPU device."""
    return 1


def current_device() -> int:
    """Return the index of the only device."""
    return 0


def get_device_name(device: Any = None) -> str:
    """Return a name for logs."""
    return "cpu"


def empty_cache() -> None:
    """Do nothing: PyTorch's CPU allocator keeps no cache."""


def ipc_collect() -> None:
    """Do nothing: no device memory is shared."""


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Do nothing: the operating system bounds memory."""


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return the machine's free and total memory in bytes."""
    memory = psutil.virtual_memory()
    return int(memory.available), int(memory.total)


def memory_allocated(device: Any = None) -> int:
    """Return this process's resident memory in bytes."""
    return int(psutil.Process().memory_info().rss)


memory_reserved = max_memory_allocated = max_memory_reserved = memory_allocated


def reset_peak_memory_stats(device: Any = None) -> None:
    """Do nothing: no peak is kept."""


def get_rng_state(device: Any = None) -> torch.Tensor:
    """Return the state of PyTorch's CPU generator."""
    return torch.get_rng_state()


def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
    """Restore the state of PyTorch's CPU generator."""
    torch.set_rng_state(state)


def manual_seed(seed: int) -> None:
    """Seed PyTorch's CPU generator."""
    torch.manual_seed(seed)


manual_seed_all = manual_seed
