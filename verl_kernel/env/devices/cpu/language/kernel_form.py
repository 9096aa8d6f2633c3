# SPDX-License-Identifier: Apache-2.0
"""A kernel's definition in the form that Triton's interpreter runs, with the compiler's meaning of `and`, `or`, `not`.

The interpreter runs a kernel as Python, where `(c < n) and (row < m)` is the second of two blocks and `not mask` is
False. Triton's compiler combines tensors lane by lane and short-circuits for constants only.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any

import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import FunctionRewriter


def translated(node: ast.FunctionDef, file: str) -> tuple[CodeType, dict[str, Any]]:
    """Compile a definition for the interpreter; its nodes are changed.

    Args:
        node: the definition; annotations and defaults are not part of the form, they were evaluated where it stands.
        file: what its lines belong to.

    Returns:
        The code of the function, and the objects that the form names besides what the source does.
    """
    before = _names(node.body)
    bare = ast.FunctionDef(node.name, _bare(node.args), node.body, [], None)
    bare.type_params = []  # type: ignore[attr-defined]  # Python 3.12 wants it
    tree = FunctionRewriter.ast_transformer.visit(_Logic().visit(ast.Module([ast.copy_location(bare, node)], [])))
    added = _names(tree.body) - before
    code = compile(ast.fix_missing_locations(tree), file, "exec", dont_inherit=True)
    function = next(item for item in code.co_consts if isinstance(item, CodeType))
    return function, {name: _OPERATORS.get(name) or getattr(interpreter, name) for name in added}


def _names(statements: Iterable[ast.stmt]) -> set[str]:
    nodes = (node for statement in statements for node in ast.walk(statement))
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def _bare(arguments: ast.arguments) -> ast.arguments:
    for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        item.annotation = None
    return ast.arguments(
        posonlyargs=arguments.posonlyargs, args=arguments.args, vararg=None, kwonlyargs=arguments.kwonlyargs,
        kw_defaults=[None] * len(arguments.kwonlyargs), kwarg=None, defaults=[],
    )  # fmt: skip


class _Logic(ast.NodeTransformer):
    """Puts calls in the place of boolean operators; their names are none that a source could use."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        later: list[ast.expr] = [ast.Lambda(nothing, value) for value in node.values]
        name = "<and>" if isinstance(node.op, ast.And) else "<or>"
        return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), later, []), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return node
        return ast.copy_location(ast.Call(ast.Name("<not>", ast.Load()), [node.operand], []), node)


def _combination(method: str, decisive: bool) -> Callable[..., Any]:
    def combine(*operands: Callable[[], Any]) -> Any:
        tensors: list[Any] = []
        value = None
        for evaluate in operands:
            value = evaluate()
            if isinstance(value, tl.tensor):
                tensors.append(value)
            elif bool(value) is decisive:
                return value
        if not tensors:
            return value
        result = tensors.pop()
        while tensors:
            result = getattr(tensors.pop(), method)(result)
        return result

    return combine


def _negation(value: Any) -> Any:
    return value == 0 if isinstance(value, tl.tensor) else not value


_OPERATORS: dict[str, Any] = {
    "<and>": _combination("logical_and", decisive=False),
    "<or>": _combination("logical_or", decisive=True),
    "<not>": _negation,
}
