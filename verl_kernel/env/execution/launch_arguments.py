# SPDX-License-Identifier: Apache-2.0
"""Arguments of a launch: from a request's JSON to a kernel's parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from verl_kernel.env.execution.arena import Arena
from verl_kernel.env.executor.arguments import encoded, flattened
from verl_kernel.env.executor.kernel import Buffer

_FAR = 1 << 30


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


def nearest(signature: Mapping[str, Any], arguments: Mapping[str, Any], arena: Arena, address: int) -> str:
    """Element and tensor at an address, in words; "" far from all tensors (other arguments as of `words`)."""
    found = [
        (abs(address - item.data_ptr()), name, address - item.data_ptr(), kind)
        for name, sort in signature.items()
        for kind, item in flattened(sort, _value(arguments[name], arena) if name in arguments else None)
        if isinstance(item, _Pointer)
    ]
    distance, name, offset, kind = min(found, default=(_FAR, "", 0, ""))
    return "" if distance >= _FAR else f"element {offset // _size(kind)} of {name}"


def _size(kind: str) -> int:
    """Bytes of an element that a pointer of this type points to."""
    bits = re.search(r"\d+", _element(kind).removeprefix("fp8"))
    return max(1, int(bits[0]) // 8) if bits else 1


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
