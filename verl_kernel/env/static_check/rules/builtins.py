# SPDX-License-Identifier: Apache-2.0
"""Rules on names: which builtins and special names may be used, and that each name is bound before it is read."""

from __future__ import annotations

import ast
import builtins as python_builtins
from collections.abc import Iterator

from verl_kernel.env.static_check.allowlist import SPECIAL_NAMES, refusal
from verl_kernel.env.static_check.names import ParsedSource
from verl_kernel.env.static_check.scopes import Key
from verl_kernel.env.static_check.syntax import bound_names, is_special
from verl_kernel.env.static_check.violation import Violation, at

BUILTINS = frozenset(
    "abs all any bool bytes callable chr complex dict divmod enumerate filter float format frozenset getattr hasattr "
    "int isinstance issubclass iter len list map max min next object ord pow print property range repr reversed round "
    "set slice sorted staticmethod classmethod str sum super tuple type zip bin hex oct ascii "
    "ArithmeticError AssertionError AttributeError Exception ImportError IndexError KeyError LookupError "
    "ModuleNotFoundError NotImplementedError OverflowError RuntimeError StopIteration TypeError UserWarning ValueError "
    "Warning ZeroDivisionError DeprecationWarning NotImplemented Ellipsis".split()
)
"""Builtins a candidate may use."""
ALL_BUILTINS = frozenset(vars(python_builtins))
_CLOSED_BUILTINS = ALL_BUILTINS - BUILTINS - SPECIAL_NAMES
_NAMED_WITH_CARE = frozenset("getattr hasattr type super".split())
_EVER, _NEVER = (1 << 60, 0), (1 << 61, 0)


def builtins(program: ParsedSource) -> Iterator[Violation]:
    """Only harmless builtins are used; locals of the same name are fine."""
    for node in program.every(ast.Name):
        if node.id in _CLOSED_BUILTINS and isinstance(node.ctx, ast.Load) and program.may_be_builtin(node):
            yield at(node, "builtin", f"{node.id} is not allowed")


def unbound(program: ParsedSource) -> Iterator[Violation]:
    """Every name that is read is bound by the text itself, or a builtin."""
    first = _first_bindings(program)
    for node in program.every(ast.Name):
        if not isinstance(node.ctx, ast.Load) or not program.is_evaluated(node):
            continue
        if node.id in ALL_BUILTINS or node.id in SPECIAL_NAMES or not program.may_be_builtin(node):
            continue
        here, place = program.key(node.id, node), (node.lineno, node.col_offset)
        in_class = here[0].is_class and first.get(here, _NEVER) <= place
        latest = _EVER if program.in_function(node) else place
        if not in_class and first.get((program.module, here[1]), _NEVER) > latest:
            yield at(node, "unbound", f"{node.id} is bound nowhere before it is used")


def _first_bindings(program: ParsedSource) -> dict[Key, tuple[int, int]]:
    """The place from which on each name is bound: behind the value or the definition that it stands for."""
    first: dict[Key, tuple[int, int]] = {}
    for node in program.nodes:
        for name in bound_names(node):
            parent = program.parents[id(node)]
            if isinstance(parent, ast.AnnAssign) and parent.value is None:
                continue
            whole = _bound_with(program, node) if isinstance(node, ast.Name) else node
            end = (getattr(whole, "end_lineno", 0), getattr(whole, "end_col_offset", 0))
            key = program.key(name, node)
            first[key] = min(end, first.get(key, end))
    return first


def _bound_with(program: ParsedSource, name: ast.Name) -> ast.AST:
    """The assignment, or the iterable of a loop, that is evaluated before a name is bound."""
    node: ast.AST = name
    while isinstance(node, ast.Name | ast.Tuple | ast.List | ast.Starred):
        node = program.parents[id(node)]
    if isinstance(node, ast.For):
        return node.iter
    return node if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr) else name


def calls(program: ParsedSource) -> Iterator[Violation]:
    """`type` has one argument, `super` is called for a method, `getattr` names what it reads."""
    for node in program.every(ast.Name):
        if node.id not in _NAMED_WITH_CARE or not isinstance(node.ctx, ast.Load) or not program.may_be_builtin(node):
            continue
        parent = program.parents[id(node)]
        call = parent if isinstance(parent, ast.Call) and parent.func is node else None
        if node.id in ("getattr", "hasattr") and (call is None or not _reads_openly(program, call)):
            yield at(node, "getattr", f"{node.id} needs a constant name of an ordinary attribute")
        elif node.id == "type" and (call is None or len(call.args) != 1 or call.keywords):
            yield at(node, "builtin", "type needs one argument")
        elif node.id == "super" and (call is None or not isinstance(program.parents[id(call)], ast.Attribute)):
            yield at(node, "builtin", "super must be called for a method, as in super().__init__()")


def _reads_openly(program: ParsedSource, call: ast.Call) -> bool:
    name = call.args[1] if len(call.args) > 1 else None
    if not isinstance(name, ast.Constant) or not isinstance(name.value, str) or name.value.startswith("_"):
        return False
    return not any(refusal(f"{path}.{name.value}") for path in program.paths(call.args[0]))


def names(program: ParsedSource) -> Iterator[Violation]:
    """Names of the language's machinery (`__builtins__`, `__loader__`) stay unused."""
    for node in program.every(ast.Name):
        is_read = node.id in SPECIAL_NAMES and (node.id != "__name__" or isinstance(node.ctx, ast.Load))
        if is_special(node.id) and not is_read:
            yield at(node, "name", f"{node.id} is not allowed")
