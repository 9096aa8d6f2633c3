# SPDX-License-Identifier: Apache-2.0
"""What a kind of GPU that kernels are compiled for must tell: how its compiler is asked, and what the result says."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from verl_kernel.env.compilation.outcome import Resources


@dataclass(frozen=True)
class Target(ABC):
    """A kind of GPU."""

    BACKEND: ClassVar[str]
    """Triton's name for the maker's back end."""
    CODE: ClassVar[str]
    """Triton's name for the text from which machine code is made."""
    TOOLS: ClassVar[str]
    """What a wheel of Triton must hold to compile for it."""
    MOST_THREADS: ClassVar[int] = 1024
    """The most threads of a block."""

    name: str
    """The name, as in `kernelgym.compile_for`."""
    gpu: str
    """A GPU of this kind."""
    lanes: int
    """Threads of a warp."""
    block_shared_bytes: int
    """The most shared memory of one block."""

    @property
    @abstractmethod
    def architecture(self) -> int | str:
        """Triton's name for it."""

    @abstractmethod
    def resources(self, metadata: Mapping[str, Any], texts: Mapping[str, str], log: str) -> Resources:
        """Read what a compiled kernel uses.

        Args:
            metadata: Triton's.
            texts: Triton's texts of the kernel by the names of its stages, `CODE` among them.
            log: what the compiler printed.
        """

    @abstractmethod
    def blocks(self, kernel: Resources) -> int | None:
        """Return how many blocks of the kernel a multiprocessor holds at a time; None if its registers are unknown."""

    @abstractmethod
    def misfit(self, kernel: Resources) -> str | None:
        """Return a sentence why no such GPU can launch a kernel that it can compile; None if it can."""

    @abstractmethod
    def wrong_grid(self, grid: Sequence[int], kernel: Resources) -> str | None:
        """Return a sentence why no such GPU can launch a grid of the kernel; None if it can."""

    @property
    def limits(self) -> str:
        """Name it, with what a block can have: part of a sentence."""
        warps, kilobytes = self.MOST_THREADS // self.lanes, self.block_shared_bytes >> 10
        return (
            f"{self.name} ({self.gpu}), where a warp has {self.lanes} threads and a block at most {warps} warps and "
            f"{kilobytes} kB of shared memory"
        )

    def too_large(self, kernel: Resources) -> str | None:
        """Return a sentence why a block is too large for every GPU of this kind; None if it is not."""
        threads, limit = kernel.warps * self.lanes, self.MOST_THREADS
        if threads > limit:
            # check: block-threads-fit
            return f"{kernel.warps} warps are {threads} threads in a block, and a block holds at most {limit}"
        if kernel.shared > self.block_shared_bytes:
            # check: block-shared-memory-fits
            return f"it needs {kernel.shared} bytes of shared memory, and a block has at most {self.block_shared_bytes}"
        return None


def first_number(pattern: re.Pattern[str], text: str) -> int | None:
    """Return the number that a pattern's group finds in a text; None if there is none."""
    match = pattern.search(text)
    return None if match is None else int(match[1])


def rounded_up(number: int, unit: int) -> int:
    """Return the smallest multiple of `unit` that is not below a number."""
    return -(-number // unit) * unit
