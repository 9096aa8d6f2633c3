# SPDX-License-Identifier: Apache-2.0
"""The source of a function under `@triton.jit`, and the values of the names in it."""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import textwrap
from types import FunctionType
from typing import Any

from triton.runtime.jit import ConstexprFunction, JITFunction, _normalize_ty

from verl_kernel.env.static_check import candidate_code

SETTINGS = ("do_not_specialize", "do_not_specialize_on_alignment", "noinline", "debug")
"""Arguments of `@triton.jit` that affect compilation."""
_NOWHERE = object()


class NotTriton(Exception):
    """A kernel, or an argument of a launch, cannot be given to Triton's compiler."""


class KernelSource:
    """A function under `@triton.jit` or `@triton.constexpr_function`, as the source defines it.

    Args:
        kernel: result of the decorator.

    Raises:
        NotTriton: the candidate's source does not define the function.
    """

    def __init__(self, kernel: Any) -> None:
        self.kernel, self.function = kernel, kernel.fn
        if hasattr(self.function, "__wrapped__"):  # Triton would take the parameters of the function that it wraps
            raise NotTriton(f"kernel {self.function.__name__} wraps another function")
        definition = candidate_code.definition(self.function) if isinstance(self.function, FunctionType) else None
        self.node: ast.FunctionDef = definition or _trusted_definition(self.function)
        self._free = _free_names(self.node)

    @property
    def is_constant(self) -> bool:
        """Whether the function is a `constexpr_function`."""
        return isinstance(self.kernel, ConstexprFunction)

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of the decorator, as JSON."""
        settings = {} if self.is_constant else {name: getattr(self.kernel, name, None) for name in SETTINGS}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()}

    @property
    def marks(self) -> dict[str, str]:
        """Annotations of the parameters, in Triton's spelling."""
        annotations = self.function.__annotations__
        named = {name: "constexpr" if "constexpr" in str(mark) else mark for name, mark in annotations.items()}
        return {name: str(_normalize_ty(mark)) for name, mark in named.items() if name != "return"}

    def names(self) -> dict[str, Any]:
        """Return the present values of the function's free names, except unbound names and Python's builtins."""
        values = {name: self._look_up(name) for name in self._free}
        return {
            name: value
            for name, value in values.items()
            if value is not _NOWHERE and value is not getattr(builtins, name, _NOWHERE)
        }

    def _look_up(self, name: str) -> Any:
        """Look up a name in the enclosing functions, the module and Python's builtins."""
        for free, cell in zip(self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True):
            if free == name:
                return _content(cell)
        return self.function.__globals__.get(name, getattr(builtins, name, _NOWHERE))


def is_kernel(value: Any) -> bool:
    """Whether the type of a value is exactly that of a `@triton.jit` result."""
    return type(value) is JITFunction


def is_function(value: Any) -> bool:
    """Whether a value is a function that kernels can call."""
    return type(value) in (JITFunction, ConstexprFunction)


def library_path(value: Any) -> tuple[str, str] | None:
    """Return module and name of a function or class of Triton; None for any other value."""
    home, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if not isinstance(home, str) or not isinstance(name, str) or home.partition(".")[0] != "triton":
        return None
    return (home, name) if getattr(sys.modules.get(home), name, None) is value else None


def _trusted_definition(function: Any) -> ast.FunctionDef:
    """Return the definition of a function of this package or a test, which no candidate can have created."""
    name = getattr(function, "__name__", function)
    if candidate_code.is_loaded() or not isinstance(function, FunctionType):
        raise NotTriton(f"kernel {name} is no function of the source")
    lines, first = inspect.getsourcelines(function)
    tree = ast.increment_lineno(ast.parse(textwrap.dedent("".join(lines))), first - 1)
    return next(node for node in tree.body if isinstance(node, ast.FunctionDef))


def _free_names(node: ast.FunctionDef) -> list[str]:
    """Return the names that the definition uses and does not bind, including those in annotations and defaults."""
    arguments = node.args
    own = {item.arg for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    inside = [inner for part in node.body for inner in ast.walk(part) if isinstance(inner, ast.Name)]
    own |= {inner.id for inner in inside if not isinstance(inner.ctx, ast.Load)}
    head = {inner.id for inner in ast.walk(arguments) if isinstance(inner, ast.Name)}
    return sorted({inner.id for inner in inside} - own | head)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the variable is not bound yet
        return _NOWHERE
