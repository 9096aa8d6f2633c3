# SPDX-License-Identifier: Apache-2.0
"""What a kernel's body may refer to: Triton's compiler refuses the rest, and so must its interpreter.

The interpreter runs a kernel as plain Python. Without this check a kernel could call NumPy or torch, where the clock
that counts loads, stores and arithmetic would not see it. A kernel is made from its checked definition, with globals
of its own that hold what was checked and nothing else.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import sys
import textwrap
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import ConstexprFunction, JITFunction

from verl_kernel.env.devices.cpu.language.kernel_form import translated
from verl_kernel.env.static_check import candidate_code

_CONSTANTS = (int, float, bool, str, type(None), tl.constexpr, tl.dtype)
_BUILTINS = {
    name: getattr(builtins, name)
    for name in "range min max len int float bool tuple list isinstance print abs slice zip enumerate".split()
}
_CONSTANT_BUILTINS = {
    **_BUILTINS,
    **{name: getattr(builtins, name) for name in "sum round any all divmod pow sorted str set dict".split()},
}
"""What a `constexpr_function` may call besides: it computes constants from constants."""
_OWNERS = (tl.tensor, tl.dtype, tl.core.pointer_type, tl.core.block_type, tl.core.tensor_descriptor_base, tl.constexpr)
_FIELDS = "dtype shape type numel element_ty scalar value block_shape strides rank nbytes name append ALL NONE".split()
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
_BODIES: dict[int, Body] = {}
"""What was made of each definition, by its id."""
_CONSTANT_FUNCTIONS: dict[FunctionType, Callable[..., Any]] = {}
"""What kernels call for each function under `@triton.constexpr_function`."""
_FIELD = type(vars(namedtuple("_Pair", "one"))["one"])
"""Class of a named tuple's fields."""


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
    is_python = home.partition(".")[0] in sys.stdlib_module_names and home != "typing"  # of which annotations are made
    return is_python or home.startswith(("triton.runtime", "triton.compiler"))


def is_library(fn: Any) -> bool:
    """Whether a function under `@triton.jit` is Triton's own."""
    return fn in _OWN


class NotTriton(TypeError):
    """A kernel uses something that Triton does not compile."""


class Body:
    """A definition compiled as the interpreter runs it, and the names it takes from outside.

    Raises:
        NotTriton: a statement or an attribute that is not Triton's.
    """

    def __init__(self, node: ast.FunctionDef, file: str) -> None:
        self.node = node  # kept, so that its id stays its own
        if node.args.vararg or node.args.kwarg:
            raise refusal(node.name, node, "a parameter with a star")
        nodes = [inner for part in node.body for inner in ast.walk(part)]
        self.globals: list[tuple[ast.Name, list[str]]] = []
        """Each use of a name that the kernel does not bind, and the attributes that follow it."""
        for inner in nodes:
            if isinstance(inner, _FORBIDDEN):
                raise refusal(node.name, inner, f"a {type(inner).__name__} statement")
            if _changes_object(inner):
                raise refusal(node.name, inner, "an assignment to a part of something")
        self._read(nodes, _locals(node, nodes))
        self.code, self.added = translated(node, file)

    def _read(self, nodes: list[ast.AST], local: set[str]) -> None:
        inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
        for node in nodes:
            if not isinstance(node, ast.Name | ast.Attribute) or id(node) in inner:
                continue
            root, names = _chain(node)
            if isinstance(root, ast.Name) and root.id not in local:
                self.globals.append((root, names))
            else:
                check_attributes(self.node.name, node, names)


class KernelText:
    """A kernel: its body and the objects its global names stand for.

    Args:
        fn: the plain function under `@triton.jit` (or `@triton.constexpr_function`).
        calls: the builtins it may call.

    Raises:
        NotTriton: the source cannot be read, or the body refers to something that is not Triton's.
        NameError: it uses a name that nothing binds.
    """

    def __init__(self, fn: FunctionType, calls: dict[str, Any] = _BUILTINS) -> None:
        self._fn, self._calls = fn, calls
        self._body = _body(fn)
        self._uses: dict[str, Any] = {}
        self._resolve()
        self.kernel = FunctionType(self._body.code, self._scope(), fn.__name__, fn.__defaults__)
        self.kernel.__kwdefaults__ = fn.__kwdefaults__
        marks = {name: "constexpr" if "constexpr" in str(mark) else mark for name, mark in fn.__annotations__.items()}
        self.kernel.__annotations__ = marks  # by any name of triton.language, not `tl` alone
        for value in (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()):
            if not _is_allowed(value):  # a tensor that no launch names would be one that nobody restores
                raise NotTriton(f"kernel {fn.__name__}: a default of type {type(value).__name__} is no constant")

    def recheck(self) -> None:
        """Check again if a global name stands for another object than before (raises as the constructor does)."""
        if self.kernel.__code__ is not self._body.code:
            raise NotTriton(f"kernel {self._fn.__name__} was changed")
        if any(self._look_up(name) is not known for name, known in self._uses.items()):
            self._resolve()
            self.kernel.__globals__.update(self._scope())

    def _resolve(self) -> None:
        self._uses = {root.id: self._look_up(root.id) for root, _ in self._body.globals}
        for root, names in self._body.globals:
            self._check_global(root, names)

    def _look_up(self, name: str) -> Any:
        """What a name of the kernel's means where it stands: in functions around it, in its module, in Python."""
        for free, cell in zip(self._fn.__code__.co_freevars, self._fn.__closure__ or (), strict=True):
            if free == name:
                return _content(cell)
        return self._fn.__globals__.get(name, self._calls.get(name, _NOWHERE))

    def _scope(self) -> dict[str, Any]:
        """The kernel's own globals: nothing of the module's but what was checked."""
        bound = {name: _callable(value) for name, value in self._uses.items()}
        return {"__builtins__": self._calls, "__name__": self._fn.__module__, **bound, **self._body.added}

    def _check_global(self, root: ast.Name, names: list[str]) -> None:
        value, path = self._uses[root.id], root.id
        if value is _NOWHERE:
            raise NameError(f"line {root.lineno}, in kernel {self._fn.__name__}: name {root.id!r} is not defined")
        while names and isinstance(value, ModuleType):
            path = f"{path}.{names[0]}"
            value, names = _member(value, names[0]), names[1:]
        if not (_is_allowed(value) or self._is_constant_function(value)):
            raise refusal(self._fn.__name__, root, path)
        check_attributes(self._fn.__name__, root, names)

    def _is_constant_function(self, value: Any) -> bool:
        if type(value) is ConstexprFunction or id(value) in map(id, self._calls.values()):
            return True
        return self._calls is _CONSTANT_BUILTINS and any(value is known for known in vars(math).values())


def _changes_object(node: ast.AST) -> bool:
    """`a.b = c` and `a[i:j] = c`; what is changed may be shared by all programs of a launch, or by all launches."""
    if isinstance(node, ast.Attribute):
        return not isinstance(node.ctx, ast.Load)
    return isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and isinstance(node.slice, ast.Slice)


def check_attributes(kernel: str, node: ast.AST, names: list[str]) -> None:
    """Refuse attributes that no object of Triton's has (raises NotTriton)."""
    for name in names:
        if name not in _ATTRIBUTES:
            raise refusal(kernel, node, f"attribute {name}")


def refusal(kernel: str, node: ast.AST, what: str) -> NotTriton:
    """The error for something that is not Triton's."""
    return NotTriton(
        f"line {getattr(node, 'lineno', 0)}, in kernel {kernel}: {what} is not part of triton.language, which is all "
        "that a kernel can use"
    )


def check_arguments(name: str, arguments: Iterable[Any]) -> None:
    """Refuse launch arguments that Triton would not take (objects whose methods could compute)."""
    for value in arguments:
        if not _may_pass(value):
            raise NotTriton(f"kernel {name}: an argument of type {type(value).__name__} cannot be passed to a kernel")


def check_constants(name: str, constants: Mapping[str, Any]) -> None:
    """Refuse `constexpr` arguments that are no constants: the kernel would get the object itself (raises NotTriton)."""
    for parameter, value in constants.items():
        if not _is_allowed(value):
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
    return _is_allowed(value)


def _is_allowed(value: Any) -> bool:
    if isinstance(value, tuple):  # no list: what one program puts into it the next one, or the host, could take out
        return _is_plain(type(value)) and all(map(_is_allowed, value))
    if type(value) is tl.constexpr:
        return _is_allowed(value.value)
    if isinstance(value, FunctionType | BuiltinFunctionType | type):
        return id(value) in _KNOWN or any(value is known for known in _BUILTINS.values())
    if type(value) in (InterpretedFunction, JITFunction, *_CONSTANTS):
        return True
    return id(value) in _KNOWN or (id(type(value)) in _KNOWN and not isinstance(value, tl.core.base_value))


def _is_plain(kind: type) -> bool:
    """Whether a class of tuples is Python's own, torch's, or a named tuple without methods that could compute."""
    if kind in (tuple, torch.Size):
        return True
    fields = getattr(kind, "_fields", ())
    if kind.__bases__ != (tuple,) or type(fields) is not tuple:
        return False
    own = {name: value for name, value in vars(kind).items() if not name.startswith("_")}
    return own.keys() == set(fields) and all(type(value) is _FIELD for value in own.values())


def _callable(value: Any) -> Any:
    """What a kernel calls: a `constexpr_function` is made from its checked definition, as kernels are."""
    if type(value) is not ConstexprFunction or id(value) in _KNOWN:
        return value
    return _CONSTANT_FUNCTIONS.get(value.fn) or _constant_function(value.fn)


def _constant_function(fn: FunctionType) -> Callable[..., Any]:
    def call(*args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
        return text.kernel(*map(_constant, args), **{name: _constant(value) for name, value in kwargs.items()})

    _CONSTANT_FUNCTIONS[fn] = call  # first, for it may call itself
    text = KernelText(fn, _CONSTANT_BUILTINS)
    return call


def _constant(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was bound to it
        return _NOWHERE


def _member(module: ModuleType, name: str) -> Any:
    content = _LIBRARY.get(id(module), vars(module))
    if name not in content:
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
    return content[name]


def _body(fn: FunctionType) -> Body:
    node = candidate_code.definition(fn) or _trusted_definition(fn)
    return _BODIES.get(id(node)) or _BODIES.setdefault(id(node), Body(node, fn.__code__.co_filename))


def _trusted_definition(fn: FunctionType) -> ast.FunctionDef:
    """The definition of a function of this package or of a test, which no candidate can have made."""
    if candidate_code.is_loaded():
        raise NotTriton(f"kernel {getattr(fn, '__name__', fn)} is no function of the source")
    lines, first = inspect.getsourcelines(fn)
    tree = ast.increment_lineno(ast.parse(textwrap.dedent("".join(lines))), first - 1)
    return next(node for node in tree.body if isinstance(node, ast.FunctionDef))


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
