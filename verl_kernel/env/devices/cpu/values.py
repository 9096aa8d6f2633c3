# SPDX-License-Identifier: Apache-2.0
"""Values as a description of a launch tells them: as far as Triton's compiler distinguishes them."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from types import ModuleType
from typing import Any

import torch
import triton.language as tl
from triton.runtime.jit import TensorWrapper
from triton.tools.tensor_descriptor import TensorDescriptor

_ALIGNMENT = 16
_NARROW, _WIDE = range(-(2**31), 2**31), range(-(2**63), 2**63)
_TENSORS = (torch.Tensor, torch.nn.Parameter)


class Values(ABC):
    """Values as JSON."""

    @abstractmethod
    def path(self, value: Any) -> tuple[str, str] | None:
        """Module and name of a function or class of Triton's own; None for anything else."""

    @abstractmethod
    def number(self, value: Any) -> int | None:
        """Number of a function that kernels can call; None for anything else."""

    def constant(self, value: Any) -> Any:
        """What `tl.constexpr` holds."""
        return self._described(value)

    def used(self, value: Any) -> Any:
        """A constant or what a name stands for."""
        try:
            return self._described(value)
        except Exception as exc:  # noqa: BLE001  what cannot be described is told so, and refused where it is used
            return {"absent": f"{type(value).__name__}: {exc}"[:200]}

    def passed(self, value: Any, is_constant: bool) -> Any:
        """An argument of a launch."""
        if is_constant:
            return self.used(value)
        if type(value) in _TENSORS or (type(value) is TensorWrapper and type(value.base) in _TENSORS):
            return {"tensor": {"dtype": _last(value.dtype), "aligned": value.data_ptr() % _ALIGNMENT == 0}}
        if type(value) is TensorDescriptor and type(value.base) in _TENSORS:
            shape = [int(size) for size in value.block_shape]
            return {"descriptor": {"dtype": _last(value.base.dtype), "block_shape": shape}}
        if type(value) is int:
            return _representative(value)
        if type(value) is float:
            return {"float": "0.5"}
        if isinstance(value, tuple):
            return _tuple(value, [self.passed(item, False) for item in value])
        return True if type(value) is bool else self.used(value)

    def _described(self, value: Any) -> Any:
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return {"float": repr(value)}
        if isinstance(value, tuple):
            return _tuple(value, list(map(self._described, value)))
        if type(value) is tl.constexpr:
            return {"constexpr": self.constant(value.value)}
        if isinstance(value, tl.core.pointer_type):
            return {"dtype": f"*{value.element_ty.name}"}
        if isinstance(value, tl.dtype):
            return {"dtype": value.name}
        return {"torch": _last(value)} if isinstance(value, torch.dtype) else self._object(value)

    def _object(self, value: Any) -> Any:
        if isinstance(value, ModuleType):
            return {"module": value.__name__}
        if isinstance(value, enum.Enum):
            return {"member": [type(value).__module__, type(value).__qualname__, value.name]}
        if path := self.path(value):
            return {"member": list(path)}
        home = getattr(value, "__module__", None)
        if home in ("math", "builtins") and callable(value):
            return {"member": [home, value.__name__]}
        if (number := self.number(value)) is not None:
            return {"function": number}
        if isinstance(value, type):
            return {"class": value.__name__}  # an annotation's; in a body the compiler refuses it
        raise TypeError("nothing that a compiler could be given")


def _representative(value: int) -> int:
    """An integer that Triton's compiler takes for the same as this one."""
    if value == 1:
        return 1
    is_even = value % _ALIGNMENT == 0
    least = 0 if value in _NARROW else 2**40 if value in _WIDE else 2**63
    return least + (_ALIGNMENT if is_even else 3)


def _tuple(value: tuple[Any, ...], values: list[Any]) -> dict[str, Any]:
    fields = getattr(type(value), "_fields", None)
    return {"tuple": {"name": type(value).__name__, "fields": fields and list(fields), "values": values}}


def _last(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]
