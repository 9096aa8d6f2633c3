# SPDX-License-Identifier: Apache-2.0
"""Shared memory: one anonymous file (memfd) per candidate, owned by the judge, mapped by the runner."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

import torch

from verl_kernel.env.ipc.tensors import DTYPES, TensorSpec, aligned
from verl_kernel.errors import InfraError

POISON = 0xFF
"""Byte of an output nobody wrote: NaN in every floating type, -1 in signed integers."""


class SharedMemory:
    """A mapping of shared memory.

    Raises:
        InfraError: the memory cannot be had.
    """

    def __init__(self, fd: int, size: int) -> None:
        self.fd, self.size = fd, size
        self._bytes = torch.frombuffer(mmap.mmap(fd, size), dtype=torch.uint8)

    @classmethod
    def create(cls, size: int) -> SharedMemory:
        """New memory of at least `size` bytes; `close` gives it back."""
        size = max(aligned(size), mmap.PAGESIZE)
        try:
            fd = os.memfd_create("verl_kernel", os.MFD_CLOEXEC)
            try:
                os.posix_fallocate(fd, 0, size)
            except OSError:
                os.close(fd)
                raise
        except OSError as exc:
            raise InfraError(f"no {size} bytes of shared memory for the tensors of an evaluation: {exc}") from exc
        return cls(fd, size)

    @classmethod
    def sparse(cls, size: int) -> SharedMemory:
        """New memory of `size` bytes whose pages are had when they are touched (raises InfraError)."""
        try:
            fd = os.memfd_create("verl_kernel", os.MFD_CLOEXEC)
            os.ftruncate(fd, size)
        except OSError as exc:
            raise InfraError(f"no shared memory for the tensors of launches: {exc}") from exc
        return cls(fd, size)

    def view(self, spec: TensorSpec) -> torch.Tensor:
        """The tensor at `spec`, in this memory."""
        flat = self._bytes[spec.offset : spec.offset + spec.nbytes].view(DTYPES[spec.dtype])
        return torch.as_strided(flat, spec.shape, spec.stride)

    def write(self, tensors: Sequence[torch.Tensor], specs: Sequence[TensorSpec]) -> None:
        """Copy tensors to their places."""
        for tensor, spec in zip(tensors, specs, strict=True):
            self.view(spec).copy_(tensor.detach())

    def region(self, start: int, stop: int) -> torch.Tensor:
        """Bytes [start, stop), shared."""
        return self._bytes[start:stop]

    def close(self) -> None:
        """Close the descriptor; the memory goes when the last view of it does."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
