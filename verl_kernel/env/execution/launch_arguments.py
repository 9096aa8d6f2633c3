# SPDX-License-Identifier: Apache-2.0
"""Arguments of a launch: from a request's JSON to a kernel's parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from verl_kernel.env.execution.arena import Arena
from verl_kernel.env.executor.arguments import encoded, flattened
from verl_kernel.env.executor.kernel import Buffer
from verl_kernel.env.executor.moves.compare import WIDTHS

_FAR = 1 << 30
"""Bytes from which on an address has nothing to do with a tensor."""


class _Pointer:
    """The address of a tensor's first element."""

    def __init__(self, address: int) -> None:
        self._address = address

    def data_ptr(self) -> int:
        """It."""
        return self._address


def words(signature: Mapping[str, Any], arguments: Mapping[str, Any], arena: Arena) -> list[Any]:
    """Values of the kernel's parameters.

    Args:
        signature: types of the parameters, by name, as Triton names them.
        arguments: of the request.
        arena: where tensors lie.
    """
    flat = [encoded(kind, item) for _, kind, item in _flat(signature, arguments, arena)]
    return [item.data_ptr() if isinstance(item, _Pointer) else item or 0 for item in flat]


def nearest(
    signature: Mapping[str, Any], arguments: Mapping[str, Any], arena: Arena, buffers: Sequence[Buffer], address: int
) -> str:
    """Element and tensor at an address, in words; "" far from all tensors (other arguments as of `words`)."""
    found = [
        (_distance(address, buffer), name, address - item.data_ptr(), _element(kind or str(sort)))
        for name, sort in signature.items()
        for kind, item in flattened(sort, _value(arguments[name], arena) if name in arguments else None)
        if isinstance(item, _Pointer)
        for buffer in buffers
        if buffer.address <= item.data_ptr() <= buffer.address + buffer.bytes
    ]
    distance, name, offset, kind = min(found, default=(_FAR, "", 0, ""))
    return "" if distance >= _FAR else f"element {offset // WIDTHS.get(kind, 1)} of {name}"


def views(told: Sequence[Sequence[int]], arena: Arena, buffers: Sequence[Buffer]) -> list[Buffer]:
    """Of each buffer what the tensors given to the launch cover of it.

    Args:
        told: offset and length of each.
        arena: where tensors lie.
        buffers: in the same order.

    Raises:
        ValueError, TypeError: it does not lie in the buffer.
    """
    found = [
        replace(item, address=arena.address(*view), bytes=view[1], written=0)
        for view, item in zip(told, buffers, strict=True)
    ]
    if any(
        view.address < item.address or view.address + view.bytes > item.address + item.bytes
        for view, item in zip(found, buffers, strict=True)
    ):
        raise ValueError("a view does not lie in its storage")
    return found


def _distance(address: int, buffer: Buffer) -> int:
    """Bytes between an address and a buffer that it lies before or behind."""
    return max(buffer.address - address, address - buffer.address - buffer.bytes, 0)


def kinds(
    signature: Mapping[str, Any], arguments: Mapping[str, Any], arena: Arena, buffers: Sequence[Buffer]
) -> list[str]:
    """Types of the elements of each buffer; none where they differ (other arguments as of `words`)."""
    named = [
        (item.data_ptr(), _element(kind or str(sort)))
        for sort, kind, item in _flat(signature, arguments, arena)
        if isinstance(item, _Pointer)
    ]
    found = [
        {kind for address, kind in named if item.address <= address <= item.address + item.bytes} for item in buffers
    ]
    return [some.pop() if len(some) == 1 else "" for some in found]


def _flat(signature: Mapping[str, Any], arguments: Mapping[str, Any], arena: Arena) -> Iterator[tuple[Any, str, Any]]:
    for name, sort in signature.items():
        for kind, item in flattened(sort, _value(arguments[name], arena) if name in arguments else None):
            yield sort, kind, item


def _element(kind: str) -> str:
    """Type of what a pointer or a descriptor of this type points to."""
    return kind.removeprefix("tensordesc<").removeprefix("*").removeprefix("k").partition("[")[0]


def _value(told: Any, arena: Arena) -> Any:
    """An argument as Triton's launcher would be given it."""
    if isinstance(told, list):
        return tuple(_value(item, arena) for item in told)
    if not isinstance(told, Mapping):
        return told
    ((kind, content),) = told.items()
    if kind == "float":
        return float(content)
    if kind == "tensor":
        return _Pointer(arena.address(content, 0))
    if kind == "descriptor":
        return SimpleNamespace(**{**content, "base": _value(content["base"], arena)})
    raise ValueError(f"an argument of the unknown kind {kind!r}")
