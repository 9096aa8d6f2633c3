# SPDX-License-Identifier: Apache-2.0
"""Shared memory: an anonymous file (memfd) per candidate that the judge owns and both judge and runner map."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from verl_kernel.errors import InfraError

# Descriptions of tensors in JSON, by which both ends of a channel find them in shared memory.
#
# A value (nested lists, tuples and dicts of tensors and plain scalars) is described by a `tree`, whose leaves are
# scalars or numbers of tensors, and by one `TensorSpec` (dtype, shape, stride, byte offset) per tensor. All other bytes
# are padding; the judge checks the padding too, which reveals a store past the end of a tensor.


ALIGNMENT = 256
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64, torch.complex128),
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    )
}
_SCALARS = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class TensorSpec:
    """A tensor's dtype, shape, stride (in elements) and offset in shared memory (in bytes)."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes from the beginning of the first to the end of the last element."""
        if 0 in self.shape:
            return 0
        last = sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))
        return (last + 1) * DTYPES[self.dtype].itemsize

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TensorSpec:
        """Rebuild a spec from the object that `to_json` returns."""
        return cls(data["dtype"], tuple(data["shape"]), tuple(data["stride"]), data["offset"])

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorSpec:
        """Return the spec of a tensor, with its own stride if that is dense, else with another that is dense.

        Raises:
            TypeError: the tensor is sparse or quantised, or its dtype is not in `DTYPES`.
        """
        name = _known_dtype(tensor)
        dense = torch.empty_like(tensor, device="meta")
        return cls(name, tuple(tensor.shape), tuple(dense.stride()))


def _known_dtype(tensor: torch.Tensor) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in DTYPES or tensor.layout is not torch.strided:
        raise TypeError(
            f"a tensor of dtype {name} and layout {tensor.layout}, which cannot cross processes: "
            f"use torch.strided and one of {', '.join(DTYPES)}"
        )
    return name


def flatten(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Return the JSON tree of `value`, and append its tensors to `tensors`, those of a dictionary by their keys.

    Raises:
        TypeError: a leaf is neither a tensor that shared memory can hold nor a plain scalar.
    """
    if isinstance(value, torch.Tensor):
        _known_dtype(value)
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if type(value) in _SCALARS:
        return {"value": value}
    if type(value) in (list, tuple):
        return {type(value).__name__: [flatten(item, tensors) for item in value]}
    if type(value) is dict and all(type(key) is str for key in value):
        parts = {key: flatten(value[key], tensors) for key in sorted(value)}
        return {"dict": {key: parts[key] for key in value}}
    raise TypeError(f"a value of type {type(value).__name__} is no tensor, number, string or container")


def unflatten(tree: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """Return the value whose tree `flatten` has made."""
    ((kind, body),) = tree.items()
    if kind == "tensor":
        return tensors[body]
    if kind == "value":
        return body
    if kind == "dict":
        return {key: unflatten(item, tensors) for key, item in body.items()}
    items = [unflatten(item, tensors) for item in body]
    return tuple(items) if kind == "tuple" else items


def place(tensors: Sequence[torch.Tensor], start: int = 0) -> tuple[list[TensorSpec], int]:
    """Lay out tensors one after another from byte `start`; return their specs and the next free aligned offset."""
    specs = []
    for tensor in tensors:
        spec = TensorSpec.of(tensor)
        specs.append(TensorSpec(spec.dtype, spec.shape, spec.stride, start))
        start = aligned(start + spec.nbytes + 1)
    return specs, start


def aligned(offset: int) -> int:
    """Round an offset up to a multiple of `ALIGNMENT`, where a tensor may begin."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


POISON = 0xFF
"""Byte that fills outputs before a forward; unwritten elements are then NaN in floating types, -1 in signed integers.
"""


class SharedMemory:
    """A mapping of shared memory.

    Raises:
        InfraError: the system does not provide the memory.
    """

    def __init__(self, fd: int, size: int) -> None:
        self.fd, self.size = fd, size
        self._map = mmap.mmap(fd, size)
        self._bytes = torch.frombuffer(self._map, dtype=torch.uint8)

    @classmethod
    def create(cls, size: int) -> SharedMemory:
        """Allocate at least `size` bytes; `close` gives them back (raises InfraError)."""
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
        """Reserve `size` bytes, whose pages are allocated when they are first touched (raises InfraError)."""
        try:
            fd = os.memfd_create("verl_kernel", os.MFD_CLOEXEC)
            os.ftruncate(fd, size)
        except OSError as exc:
            raise InfraError(f"no shared memory for the tensors of launches: {exc}") from exc
        return cls(fd, size)

    def view(self, spec: TensorSpec) -> torch.Tensor:
        """Return the tensor that `spec` describes, as a view of this memory."""
        flat = self._bytes[spec.offset : spec.offset + spec.nbytes].view(DTYPES[spec.dtype])
        return torch.as_strided(flat, spec.shape, spec.stride)

    def write(self, tensors: Sequence[torch.Tensor], specs: Sequence[TensorSpec]) -> None:
        """Copy tensors to the places that `specs` describe."""
        for tensor, spec in zip(tensors, specs, strict=True):
            self.view(spec).copy_(tensor.detach())

    def region(self, start: int, stop: int) -> torch.Tensor:
        """Return a view of the bytes [start, stop)."""
        return self._bytes[start:stop]

    def content(self, start: int, stop: int) -> bytes:
        """Return a copy of the bytes [start, stop)."""
        return self._map[start:stop]

    def poison(self, start: int, stop: int) -> None:
        """Fill the bytes [start, stop) with `POISON`, in one thread: torch would start others for a few kilobytes."""
        self._bytes.numpy()[start:stop].fill(POISON)

    def close(self) -> None:
        """Close the descriptor; the memory is freed with its last view."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
