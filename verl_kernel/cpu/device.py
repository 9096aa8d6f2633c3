# SPDX-License-Identifier: Apache-2.0
"""The `torch.<device>` namespace that verl needs from a platform: `torch.cpu` with the missing parts of `torch.cuda`.

Memory is the machine's (bytes), read through psutil.
"""

from __future__ import annotations

from typing import Any

import psutil
import torch
from torch.cpu import (  # noqa: F401 - re-exported: verl looks them up on this module
    Event,
    Stream,
    current_device,
    current_stream,
    device_count,
    is_available,
    set_device,
    stream,
    synchronize,
)


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
