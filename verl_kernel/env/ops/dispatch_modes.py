# SPDX-License-Identifier: Apache-2.0
"""Dispatch modes that see a program op by op, as a device would run it.

In inference mode torch passes composite ops to a mode undivided; they are decomposed first.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

_KEYS = torch._C.DispatchKey


def parts(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Run an op that is composed of others; returns NotImplemented if a device has a kernel for it.

    `OpOverload.decompose` would prefer the decompositions of torch's compiler, which no device runs op by op.
    """
    return func._op_dk(_KEYS.CompositeImplicitAutograd, *args, **kwargs) if _is_composite(func) else NotImplemented


@cache
def _is_composite(func: Any) -> bool:
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    name = func.name()
    return has_kernel(name, _KEYS.CompositeImplicitAutograd) and not has_kernel(name, _KEYS.CPU)


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode without torch's compiler, which costs each process that imports it 80 MB and a second."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class OpMode(DispatchMode):  # type: ignore[no-untyped-call]
    """Calls `run_op` for every op in the context that is not composed of others."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with self:
            result = parts(func, args, kwargs)
        return self.run_op(func, args, kwargs) if result is NotImplemented else result

    def run_op(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run one op, or a replacement, and return the result."""
        raise NotImplementedError


def changed(schema: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """Return the tensors among an op's arguments that it writes to."""
    arguments = {**dict(zip((item.name for item in schema.arguments), args, strict=False)), **kwargs}
    names = [item.name for item in schema.arguments if item.alias_info is not None and item.alias_info.is_write]
    leaves = pytree.tree_leaves([arguments.get(name) for name in names])
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
