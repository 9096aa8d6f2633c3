# SPDX-License-Identifier: Apache-2.0
"""Switches one check off: its function runs on without the statement that says what was found."""

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from inspect import unwrap
from types import CodeType, FunctionType
from typing import Any

from tests.mutation.sites import Functions, Site, functions

_NO_YIELD = ast.parse("def f():\n    if False: yield").body[0]
_EMPTY = ast.List([], ast.Load())


@contextmanager
def switched_off(site: Site) -> Iterator[None]:
    """Where the evaluator lacks this check."""
    function = _function(site)
    before, function.__code__ = function.__code__, _without(site)
    try:
        yield
    finally:
        function.__code__ = before


def _function(site: Site) -> FunctionType:
    member: Any = import_module(site.module)
    for name in site.function.split("."):
        member = vars(member)[name]
    member = getattr(member, "fget", None) or getattr(member, "__func__", member)
    function: FunctionType = unwrap(member)
    return function


def _without(site: Site) -> CodeType:
    tree = ast.parse(site.file.read_text())
    function = dict(functions(tree))[site.function]
    statement = next(node for node in ast.walk(function) if isinstance(node, ast.stmt) and node.lineno == site.line)
    _Left(statement, function).visit(tree)
    return _code_of(compile(ast.fix_missing_locations(tree), str(site.file), "exec"), site.function)


def _code_of(code: CodeType, name: str) -> CodeType:
    for part in name.split("."):
        code = next(item for item in code.co_consts if isinstance(item, CodeType) and item.co_name == part)
    return code


class _Left(ast.NodeTransformer):
    """A tree with one statement of a function left out."""

    def __init__(self, statement: ast.stmt, function: Functions) -> None:
        self._statement = statement
        returns = "" if function.returns is None else ast.unparse(function.returns)
        self._empty = _EMPTY if returns.startswith("list") else None

    def visit(self, node: ast.AST) -> Any:
        """What stands in the place of a node."""
        if node is not self._statement:
            return self.generic_visit(node)
        if isinstance(node, ast.Expr):
            return _NO_YIELD.body[0] if isinstance(node.value, ast.Yield | ast.YieldFrom) else ast.Pass()
        if isinstance(node, ast.Return) and self._empty is not None:
            return ast.Return(self._empty)
        if isinstance(node, ast.Assign | ast.AugAssign):
            node.value = _EMPTY
            return node
        return ast.Pass()
