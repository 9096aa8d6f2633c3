# SPDX-License-Identifier: Apache-2.0
"""The text of a kernel: what its statements and attributes may be, and which names it takes from outside."""

from __future__ import annotations

import ast
import inspect
import textwrap
from types import FunctionType
from typing import NoReturn

import triton.language as tl

from verl_kernel.env.devices.cpu.language.kernel_form import translated
from verl_kernel.env.devices.cpu.language.triton_objects import NotTriton, refusal
from verl_kernel.env.static_check import candidate_code
from verl_kernel.env.static_check.syntax import attribute_chain

_OWNERS = (tl.tensor, tl.dtype, tl.core.pointer_type, tl.core.block_type, tl.core.tensor_descriptor_base, tl.constexpr)
_FIELDS = "dtype shape type numel element_ty scalar value block_shape strides rank nbytes name append ALL NONE".split()
_ATTRIBUTES = frozenset(name for owner in _OWNERS for name in dir(owner) if not name.startswith("_")) | set(_FIELDS)
_FORBIDDEN = (
    *(ast.Lambda, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Import, ast.ImportFrom, ast.Try),
    *(ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.Delete, ast.GeneratorExp, ast.DictComp),
)
_BODIES: dict[int, Body] = {}
"""What was made of each definition, by its id."""


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
        self.head = {inner.id for inner in ast.walk(node.args) if isinstance(inner, ast.Name)}
        """Names in annotations and defaults, which `translated` drops."""
        self.code, self.added = translated(node, file)

    def _read(self, nodes: list[ast.AST], local: set[str]) -> None:
        inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
        for node in nodes:
            if not isinstance(node, ast.Name | ast.Attribute) or id(node) in inner:
                continue
            root, names = attribute_chain(node)
            if isinstance(root, ast.Name) and root.id not in local:
                self.globals.append((root, names))
            else:
                check_attributes(self.node.name, node, names)


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


def raise_at(error: Exception, fn: FunctionType, line: int) -> NoReturn:
    """Raise an error as if a line of a function had raised it: tracebacks are what names the line to a reader."""
    code = compile("raise error", fn.__code__.co_filename, "exec")
    exec(code.replace(co_firstlineno=line, co_name=fn.__name__), {"error": error.with_traceback(None)})
    raise error


def body_of(fn: FunctionType) -> Body:
    """The body of a function under `@triton.jit`, read once (raises NotTriton)."""
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
