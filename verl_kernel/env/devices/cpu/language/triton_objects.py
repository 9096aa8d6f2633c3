# SPDX-License-Identifier: Apache-2.0
"""What of Triton's, and which other objects, a kernel under the interpreter may refer to or get as an argument."""

from __future__ import annotations

import ast
import builtins
import sys
from collections import namedtuple
from collections.abc import Iterable, Mapping
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

BUILTINS = {
    name: getattr(builtins, name)
    for name in "range min max len int float bool tuple list isinstance print abs slice zip enumerate".split()
}
_CONSTANTS = (int, float, bool, str, type(None), tl.constexpr, tl.dtype)
_LIBRARY: dict[int, dict[str, Any]] = {}
"""Contents of triton and of the modules of triton.language by module id: launches patch them."""
_KNOWN: set[int] = set()
"""Ids of the functions and classes in `_LIBRARY`."""
_OWN: set[Any] = set()
"""The plain functions under Triton's own jit functions."""
_FIELD = type(vars(namedtuple("_Pair", "one"))["one"])
"""Class of a named tuple's fields."""


class NotTriton(TypeError):
    """A kernel uses something that Triton does not compile."""


def refusal(kernel: str, node: ast.AST, what: str) -> NotTriton:
    """The error for something that is not Triton's."""
    return NotTriton(
        f"line {getattr(node, 'lineno', 0)}, in kernel {kernel}: {what} is not part of triton.language, which is all "
        "that a kernel can use"
    )


def freeze() -> None:
    """Remember triton.language as it is now (once per process, before any candidate is loaded)."""
    if _LIBRARY:
        return
    for name, module in list(sys.modules.items()):
        if name == "triton" or f"{name}.".startswith("triton.language."):
            _LIBRARY[id(module)] = content = dict(vars(module))
            _KNOWN.update(id(value) for value in content.values() if callable(value) and not _is_borrowed(value))
            _OWN.update(value.fn for value in content.values() if isinstance(value, InterpretedFunction))


def _is_borrowed(value: Any) -> bool:
    """Whether it is Python's own (a `functools.partial` calls anything) or what the host compiles and launches with."""
    home = str(getattr(value, "__module__", ""))
    is_python = home.partition(".")[0] in sys.stdlib_module_names and home != "typing"  # which annotations use
    return is_python or home.startswith(("triton.runtime", "triton.compiler"))


def is_library(fn: Any) -> bool:
    """Whether a function under `@triton.jit` is Triton's own."""
    return fn in _OWN


def is_known(value: Any) -> bool:
    """Whether it is a function or class of triton or triton.language as they were."""
    return id(value) in _KNOWN


def path(value: Any) -> tuple[str, str] | None:
    """Module and name of a function or class of triton's own; None for anything else."""
    if id(value) not in _KNOWN:
        return None
    contents = [(content, name) for content in _LIBRARY.values() for name, item in content.items() if item is value]
    return next(((str(content["__name__"]), name) for content, name in contents), None)


def member(module: ModuleType, name: str) -> Any:
    """An attribute of a module, of Triton's as it was before launches patch it (raises AttributeError)."""
    content = _LIBRARY.get(id(module), vars(module))
    if name not in content:
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
    return content[name]


def may_refer_to(value: Any) -> bool:
    """Whether a kernel may use an object: Triton's own, a kernel, or a constant."""
    if isinstance(value, tuple):  # no list: what one program puts into it the next one, or the host, could take out
        return _is_plain(type(value)) and all(map(may_refer_to, value))
    if type(value) is tl.constexpr:
        return may_refer_to(value.value)
    if isinstance(value, FunctionType | BuiltinFunctionType | type):
        return is_known(value) or any(value is known for known in BUILTINS.values())
    if type(value) in (InterpretedFunction, JITFunction, *_CONSTANTS):
        return True
    return is_known(value) or (is_known(type(value)) and not isinstance(value, tl.core.base_value))


def _is_plain(kind: type) -> bool:
    """Whether a class of tuples is Python's own, torch's, or a named tuple without methods that could compute."""
    if kind in (tuple, torch.Size):
        return True
    fields = getattr(kind, "_fields", ())
    if kind.__bases__ != (tuple,) or type(fields) is not tuple:
        return False
    own = {name: value for name, value in vars(kind).items() if not name.startswith("_")}
    return own.keys() == set(fields) and all(type(value) is _FIELD for value in own.values())


def check_arguments(name: str, arguments: Iterable[Any]) -> None:
    """Refuse launch arguments that Triton would not take (objects whose methods could compute)."""
    for value in arguments:
        if not _may_pass(value):
            raise NotTriton(f"kernel {name}: an argument of type {type(value).__name__} cannot be passed to a kernel")


def check_constants(name: str, constants: Mapping[str, Any]) -> None:
    """Refuse `constexpr` arguments that are no constants: the kernel would get the object itself (raises NotTriton)."""
    for parameter, value in constants.items():
        if not may_refer_to(value):
            raise NotTriton(f"kernel {name}: {parameter} is a constexpr, which a {type(value).__name__} cannot be")


def _may_pass(value: Any) -> bool:
    from triton.runtime.jit import TensorWrapper
    from triton.tools.tensor_descriptor import TensorDescriptor

    if type(value) in (torch.Tensor, torch.nn.Parameter, torch.dtype):
        return True
    if type(value) in (TensorWrapper, TensorDescriptor):
        sizes = [*value.shape, *getattr(value, "strides", ())]
        return type(value.base) in (torch.Tensor, torch.nn.Parameter) and all(type(size) is int for size in sizes)
    if isinstance(value, tuple):
        return _is_plain(type(value)) and all(map(_may_pass, value))
    return may_refer_to(value)
