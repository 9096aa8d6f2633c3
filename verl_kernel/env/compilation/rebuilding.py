# SPDX-License-Identifier: Apache-2.0
"""Makes jit functions from described ones, with their definitions in the candidate's file.

None of the candidate's host code runs: a function gets the text of its definition, and the values that the names it
uses had at its launch.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections import namedtuple
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType
from typing import Any

import triton
import triton.language as tl
from triton.runtime.jit import ConstexprFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from verl_kernel.env.compilation.description import Function, Place, Unit

_LIBRARIES = ("triton", "math", "numpy", "typing", "builtins")
"""Packages whose modules a name may refer to, in addition to `torch`, which annotations name and this process lacks."""


class Tensor:
    """A tensor argument with only the attributes that Triton reads."""

    def __init__(self, dtype: str, is_aligned: bool) -> None:
        self.dtype, self._address = Dtype(dtype), 0 if is_aligned else 8
        self.shape = [1]

    def data_ptr(self) -> int:
        """Return an address of the same alignment."""
        return self._address

    def ptr_range(self) -> int:
        """Return 0: AMD's back end asks whether 32 bits count the bytes, as they do in trials."""
        return 0


class Dtype:
    """A dtype whose text is that of torch's dtype."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def itemsize(self) -> int:
        """Return the bytes of an element."""
        bits = re.search(r"\d+", self._name)
        return int(bits[0]) // 8 if bits else 1

    def __str__(self) -> str:
        return f"torch.{self._name}"

    def __hash__(self) -> int:
        return hash(self._name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dtype) and self._name == other._name


class Rebuilt:
    """The functions and arguments of a unit.

    Args:
        unit: the unit to rebuild.
        definitions: definitions in the candidate's file, by name and line.
        file: path of the file, which holds the text.
    """

    def __init__(self, unit: Unit, definitions: Mapping[Place, ast.FunctionDef], file: str) -> None:
        self._unit, self._definitions, self._file = unit, definitions, file
        self._scopes: list[dict[str, Any]] = []
        self.functions = [self._function(item) for item in unit.functions]
        """Jit functions, by number; the first one is the kernel."""
        for scope, item in zip(self._scopes, unit.functions, strict=True):
            scope.update((name, self.value(value)) for name, value in item.uses.items() if not _is_absent(value))
        launch = unit.launch
        self.positional = [self.value(value) for value in launch.positional]
        self.named = {name: self.value(value) for name, value in launch.named.items()}
        self.options = {name: self.value(value) for name, value in launch.options.items()}

    def value(self, described: Any) -> Any:
        """Return the value that a description represents (raises ValueError for an unknown or absent one)."""
        if not isinstance(described, dict):
            return described
        ((kind, content),) = described.items()
        if kind not in _KINDS:
            raise ValueError(f"a value of the unknown kind {kind!r}")
        return _KINDS[kind](self, content)

    def _function(self, item: Function) -> Any:
        scope: dict[str, Any] = {"__name__": "kernel", "__builtins__": __builtins__}
        node = self._definitions[item.name, item.line]
        plain = FunctionType(_code(node, self._file), scope, item.name)
        plain.__annotations__ = dict(item.marks)
        _set_defaults(plain, {name: self.value(value) for name, value in item.defaults.items()})
        self._scopes.append(scope)
        if item.is_constant:
            return triton.constexpr_function(plain)
        return triton.jit(plain, **{name: self.value(value) for name, value in item.settings.items()})

    def _tuple(self, content: Any) -> Any:
        values = [self.value(value) for value in content["values"]]
        fields = content["fields"]
        return tuple(values) if fields is None else namedtuple(content["name"], fields)(*values)


def _set_defaults(function: FunctionType, values: dict[str, Any]) -> None:
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    function.__defaults__ = tuple(values[name] for name in names if name in values) or None
    function.__kwdefaults__ = {name: value for name, value in values.items() if name not in names}


def _code(node: ast.FunctionDef, file: str) -> CodeType:
    """Compile the function without decorators, annotations and defaults, whose values are known."""
    arguments = node.args
    names = [ast.arg(item.arg) for item in arguments.args]
    bare = ast.arguments(
        posonlyargs=[ast.arg(item.arg) for item in arguments.posonlyargs],
        args=names,
        kwonlyargs=[ast.arg(item.arg) for item in arguments.kwonlyargs],
        kw_defaults=[None] * len(arguments.kwonlyargs),
        defaults=[],
    )
    function = ast.FunctionDef(name=node.name, args=bare, body=node.body, decorator_list=[], returns=None)
    function.type_params = []  # type: ignore[attr-defined]  # Python 3.12 wants it
    module = ast.Module(body=[ast.copy_location(function, node)], type_ignores=[])
    code = compile(ast.fix_missing_locations(module), file, "exec", dont_inherit=True)
    return next(item for item in code.co_consts if isinstance(item, CodeType))


def _is_absent(described: Any) -> bool:
    return isinstance(described, dict) and described.keys() == {"absent"}


def _module(name: str) -> Any:
    if name.partition(".")[0] == "torch":
        return sys.modules["torch"]
    if name.partition(".")[0] not in _LIBRARIES:
        raise ValueError(f"the module {name!r} is none that a kernel uses")
    return importlib.import_module(name)


def _member(rebuilt: Rebuilt, path: list[str]) -> Any:
    """Return a member of a module: a function, a class, or a value of an enumeration."""
    member = _module(path[0])
    for name in path[1:]:
        member = getattr(member, name)
    return member


def _descriptor(rebuilt: Rebuilt, content: Any) -> Any:
    base, shape = Tensor(content["dtype"], is_aligned=True), content["block_shape"]
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * max(16, size))
    return TensorDescriptor(base, [max(16, size) for size in shape], strides, shape)


def _dtype(rebuilt: Rebuilt, name: str) -> Any:
    return tl.pointer_type(tl.dtype(name[1:])) if name.startswith("*") else tl.dtype(name)


def _plain(value: Any) -> Any:
    """Return the value that `tl.constexpr` holds; for a constexpr function, the plain function."""
    return value.fn if isinstance(value, ConstexprFunction) else value


def _absent(rebuilt: Rebuilt, reason: str) -> Any:
    raise ValueError(f"it uses what a compiler cannot be given ({reason})")


_KINDS: dict[str, Callable[[Rebuilt, Any], Any]] = {
    "absent": _absent,
    "float": lambda rebuilt, text: float(text),
    "constexpr": lambda rebuilt, value: tl.constexpr(_plain(rebuilt.value(value))),
    "dtype": _dtype,
    "torch": lambda rebuilt, name: Dtype(name),
    "tuple": Rebuilt._tuple,
    "function": lambda rebuilt, number: rebuilt.functions[number],
    "class": lambda rebuilt, name: type(name, (), {}),
    "module": lambda rebuilt, name: _module(name),
    "member": _member,
    "tensor": lambda rebuilt, content: Tensor(content["dtype"], content["aligned"]),
    "descriptor": _descriptor,
}
