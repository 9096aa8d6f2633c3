# SPDX-License-Identifier: Apache-2.0
"""What a kernel's body may refer to: Triton's compiler refuses the rest, and so must its interpreter.

The interpreter runs a kernel as plain Python. Without this check a kernel could call NumPy or torch, where the clock
that counts loads, stores and arithmetic would not see it. A kernel is made from its checked definition, with globals
of its own that hold what was checked and nothing else.
"""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import triton.language as tl
from triton.runtime.jit import ConstexprFunction

from verl_kernel.env.devices.cpu.language.kernel_body import body_of, check_attributes, raise_at
from verl_kernel.env.devices.cpu.language.triton_objects import (
    BUILTINS,
    NotTriton,
    is_known,
    may_refer_to,
    member,
    refusal,
)

_CONSTANT_BUILTINS = {
    **BUILTINS,
    **{name: getattr(builtins, name) for name in "sum round any all divmod pow sorted str set dict".split()},
}
"""What a `constexpr_function` may call besides: it computes constants from constants."""
_NOWHERE = object()
_CONSTANT_FUNCTIONS: dict[FunctionType, Callable[..., Any]] = {}
"""What kernels call for each function under `@triton.constexpr_function`."""
CONSTANT_TEXTS: dict[FunctionType, KernelText] = {}
"""The checked texts of these functions."""


class KernelText:
    """A kernel: its body and the objects its global names stand for.

    Args:
        fn: the plain function under `@triton.jit` (or `@triton.constexpr_function`).
        calls: the builtins it may call.

    Raises:
        NotTriton: the source cannot be read, or the body refers to something that is not Triton's.
        NameError: it uses a name that nothing binds.
    """

    def __init__(self, fn: FunctionType, calls: dict[str, Any] = BUILTINS) -> None:
        self.function, self._calls = fn, calls
        self.settings: dict[str, Any] = {}
        """Arguments of its decorator."""
        self._body = body_of(fn)
        self.uses: dict[str, Any] = {}
        """What the names that it does not bind stand for."""
        self._resolve()
        self.kernel = FunctionType(self._body.code, self._scope(), fn.__name__, fn.__defaults__)
        self.kernel.__kwdefaults__ = fn.__kwdefaults__
        marks = {name: "constexpr" if "constexpr" in str(mark) else mark for name, mark in fn.__annotations__.items()}
        self.kernel.__annotations__ = marks  # whatever name the source has for triton.language
        for value in (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()):
            if not may_refer_to(value):  # a tensor here is no argument of a launch, so tuning would not restore it
                raise NotTriton(f"kernel {fn.__name__}: a default of type {type(value).__name__} is no constant")

    def names(self) -> dict[str, Any]:
        """What all names of the definition stand for that it does not bind, those of annotations and defaults too."""
        head = {name: self._look_up(name) for name in self._body.head}
        return {**self.uses, **{name: value for name, value in head.items() if value is not _NOWHERE}}

    def recheck(self) -> None:
        """Check again if a global name stands for another object than before (raises as the constructor does)."""
        if self.kernel.__code__ is not self._body.code:
            raise NotTriton(f"kernel {self.function.__name__} was changed")
        if any(self._look_up(name) is not known for name, known in self.uses.items()):
            self._resolve()
            self.kernel.__globals__.update(self._scope())

    def _resolve(self) -> None:
        self.uses = {root.id: self._look_up(root.id) for root, _ in self._body.globals}
        for root, names in self._body.globals:
            self._check_global(root, names)

    def _look_up(self, name: str) -> Any:
        """What a name of the kernel's means where it stands: in functions around it, in its module, in Python."""
        for free, cell in zip(self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True):
            if free == name:
                return _content(cell)
        return self.function.__globals__.get(name, self._calls.get(name, _NOWHERE))

    def _scope(self) -> dict[str, Any]:
        """The kernel's own globals: nothing of the module's but what was checked."""
        bound = {name: _callable(value) for name, value in self.uses.items()}
        return {"__builtins__": self._calls, "__name__": self.function.__module__, **bound, **self._body.added}

    def _check_global(self, root: ast.Name, names: list[str]) -> None:
        value, path = self.uses[root.id], root.id
        if value is _NOWHERE:
            raise NameError(f"line {root.lineno}, in kernel {self.function.__name__}: name {root.id!r} is not defined")
        while names and isinstance(value, ModuleType):
            path = f"{path}.{names[0]}"
            value, names = self._member(value, names[0], root), names[1:]
        if not (may_refer_to(value) or self._is_constant_function(value)):
            raise refusal(self.function.__name__, root, path)
        check_attributes(self.function.__name__, root, names)

    def _member(self, module: ModuleType, name: str, node: ast.AST) -> Any:
        """An attribute of a module; where it has none, the kernel's line is the last one of the traceback."""
        try:
            return member(module, name)
        except AttributeError as exc:
            raise_at(exc, self.function, getattr(node, "lineno", 0))

    def _is_constant_function(self, value: Any) -> bool:
        if type(value) is ConstexprFunction or id(value) in map(id, self._calls.values()):
            return True
        return self._calls is _CONSTANT_BUILTINS and any(value is known for known in vars(math).values())


def _callable(value: Any) -> Any:
    """What a kernel calls: a `constexpr_function` is made from its checked definition, as kernels are."""
    if type(value) is not ConstexprFunction or is_known(value):
        return value
    return _CONSTANT_FUNCTIONS.get(value.fn) or _constant_function(value.fn)


def _constant_function(fn: FunctionType) -> Callable[..., Any]:
    def call(*args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
        return text.kernel(*map(_constant, args), **{name: _constant(value) for name, value in kwargs.items()})

    _CONSTANT_FUNCTIONS[fn] = call  # first, for it may call itself
    CONSTANT_TEXTS[fn] = text = KernelText(fn, _CONSTANT_BUILTINS)
    return call


def _constant(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was bound to it
        return _NOWHERE
