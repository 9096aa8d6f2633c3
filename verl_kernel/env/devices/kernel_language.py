# SPDX-License-Identifier: Apache-2.0
"""What a kernel's body may refer to: Triton's compiler refuses the rest, and so must its interpreter.

The interpreter runs a kernel as plain Python. Without this check a kernel could call NumPy or torch, where the clock
that counts loads, stores and arithmetic would not see it.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import textwrap
from collections.abc import Iterable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

_CONSTANTS = (int, float, bool, str, type(None), tl.constexpr, tl.dtype)
_FUNCTIONS = frozenset(
    getattr(builtins, name)
    for name in "range min max len int float bool tuple list isinstance print abs slice zip enumerate".split()
)
_OWNERS = (tl.tensor, tl.dtype, tl.core.pointer_type, tl.core.block_type, tl.core.tensor_descriptor_base, tl.constexpr)
_FIELDS = "dtype shape type numel element_ty scalar value block_shape strides rank nbytes name append".split()
_ATTRIBUTES = frozenset(name for owner in _OWNERS for name in dir(owner) if not name.startswith("_")) | set(_FIELDS)
_FORBIDDEN = (
    *(ast.Lambda, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Import, ast.ImportFrom, ast.Try),
    *(ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.Delete, ast.GeneratorExp, ast.DictComp),
)


_NOWHERE = object()
_LIBRARY: dict[int, dict[str, Any]] = {}
"""Contents of triton and of the modules of triton.language by module id: launches patch them."""
_KNOWN: set[int] = set()
"""Ids of the functions and classes in `_LIBRARY`."""
_OWN: set[Any] = set()
"""The plain functions under Triton's own jit functions."""


def freeze() -> None:
    """Remember triton.language as it is now (once per process, before any candidate is loaded)."""
    if _LIBRARY:
        return
    for name, module in list(sys.modules.items()):
        if name == "triton" or f"{name}.".startswith("triton.language."):
            _LIBRARY[id(module)] = content = dict(vars(module))
            _KNOWN.update(id(value) for value in content.values() if callable(value))
            _OWN.update(value.fn for value in content.values() if isinstance(value, InterpretedFunction))


def is_library(fn: Any) -> bool:
    """Whether a function under `@triton.jit` is Triton's own."""
    return fn in _OWN


class NotTriton(TypeError):
    """A kernel uses something that Triton does not compile."""


class KernelText:
    """A kernel's body and the objects its global names stand for.

    Args:
        fn: the plain function under `@triton.jit`.

    Raises:
        NotTriton: the source cannot be read, or the body refers to something that is not Triton's.
    """

    def __init__(self, fn: Any) -> None:
        self._fn: Any = fn
        self._uses: dict[str, Any] = {}
        if is_library(fn):
            return
        function = _definition(fn)
        parts = [*function.body, *(item for item in function.args.defaults if item is not None)]
        nodes = [node for part in parts for node in ast.walk(part)]
        self._forbid(nodes)
        self._resolve(nodes, _locals(function, nodes))

    def recheck(self) -> None:
        """Check again if a global name stands for another object than before (raises NotTriton)."""
        scope = self._fn.__globals__
        if any(scope.get(name, _NOWHERE) is not known for name, known in self._uses.items()):
            self.__init__(self._fn)  # type: ignore[misc]

    def _forbid(self, nodes: list[ast.AST]) -> None:
        for node in nodes:
            if isinstance(node, _FORBIDDEN):
                raise self._refusal(f"a {type(node).__name__} statement", node)

    def _resolve(self, nodes: list[ast.AST], local: set[str]) -> None:
        inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
        for node in nodes:
            if not isinstance(node, ast.Name | ast.Attribute) or id(node) in inner:
                continue
            root, names = _chain(node)
            if isinstance(root, ast.Name) and root.id not in local:
                self._check_global(root, names)
            else:
                self._check_attributes(node, names)

    def _check_global(self, root: ast.Name, names: list[str]) -> None:
        scope = self._fn.__globals__
        self._uses[root.id] = scope.get(root.id, _NOWHERE)
        known = scope[root.id] if root.id in scope else getattr(builtins, root.id, _NOWHERE)
        if known is _NOWHERE:  # the kernel will say so itself, with the line
            return
        value, path = known, root.id
        while names and isinstance(value, ModuleType):
            path = f"{path}.{names[0]}"
            value, names = _member(value, names[0]), names[1:]
        if not _is_allowed(value):
            raise self._refusal(path, root)
        self._check_attributes(root, names)

    def _check_attributes(self, node: ast.AST, names: list[str]) -> None:
        for name in names:
            if name not in _ATTRIBUTES:
                raise self._refusal(f"attribute {name}", node)

    def _refusal(self, what: str, node: ast.AST) -> NotTriton:
        return NotTriton(
            f"line {getattr(node, 'lineno', 0)}, in kernel {self._fn.__name__}: {what} is not part of triton.language, "
            "which is all that a kernel can use"
        )


def check_arguments(name: str, arguments: Iterable[Any]) -> None:
    """Refuse launch arguments that Triton would not take (objects whose methods could compute)."""
    for value in arguments:
        if not _may_pass(value):
            raise NotTriton(f"kernel {name}: an argument of type {type(value).__name__} cannot be passed to a kernel")


def _may_pass(value: Any) -> bool:
    import torch
    from triton.runtime.jit import TensorWrapper
    from triton.tools.tensor_descriptor import TensorDescriptor

    if type(value) in (torch.Tensor, torch.nn.Parameter, torch.dtype):
        return True
    if isinstance(value, TensorWrapper | TensorDescriptor):
        return type(value.base) in (torch.Tensor, torch.nn.Parameter)
    if isinstance(value, tuple | list):
        return all(map(_may_pass, value))
    return type(value) in _CONSTANTS or _is_allowed(value)


def _is_allowed(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_allowed, value))
    if isinstance(value, FunctionType | BuiltinFunctionType | type):
        return id(value) in _KNOWN or value in _FUNCTIONS
    if type(value) in (InterpretedFunction, JITFunction, *_CONSTANTS):
        return True
    return isinstance(value, tl.dtype) or id(value) in _KNOWN or type(value).__module__ == "triton.language.core"


def _member(module: ModuleType, name: str) -> Any:
    content = _LIBRARY.get(id(module), vars(module))
    if name not in content:
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
    return content[name]


def _definition(fn: Any) -> ast.FunctionDef:
    try:
        lines, first = inspect.getsourcelines(fn)
        tree = ast.increment_lineno(ast.parse(textwrap.dedent("".join(lines))), first - 1)
    except (OSError, TypeError, SyntaxError, ValueError) as exc:
        raise NotTriton(f"kernel {getattr(fn, '__name__', fn)}: its source cannot be read from a file") from exc
    function = next((node for node in tree.body if isinstance(node, ast.FunctionDef)), None)
    if function is None:
        raise NotTriton(f"kernel {getattr(fn, '__name__', fn)}: its source is not a function")
    return function


def _locals(function: ast.FunctionDef, nodes: list[ast.AST]) -> set[str]:
    arguments = function.args
    named = {item.arg for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    return named | stored


def _chain(node: ast.AST) -> tuple[ast.AST, list[str]]:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return node, names[::-1]
