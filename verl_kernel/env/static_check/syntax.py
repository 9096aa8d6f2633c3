# SPDX-License-Identifier: Apache-2.0
"""Questions about single nodes of a syntax tree."""

from __future__ import annotations

import ast


def head(node: ast.AST) -> ast.AST:
    """What is called: `f` of `f(x)`, and the expression itself where nothing is."""
    return node.func if isinstance(node, ast.Call) else node


def root(node: ast.AST) -> ast.AST:
    """The innermost value of a chain of attributes and subscripts."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node


def attribute_chain(node: ast.AST) -> tuple[ast.AST, list[str]]:
    """The innermost value of a chain of attributes, and the attributes in order: `a` and `["b", "c"]` of `a.b.c`."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return node, names[::-1]


def is_import(node: ast.AST) -> bool:
    """Whether a node is an import statement of either form."""
    return isinstance(node, ast.Import | ast.ImportFrom)


def sets_constant(node: ast.AST) -> bool:
    """Whether a node binds names to a constant."""
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)


def bound_names(node: ast.AST) -> list[str]:
    """Names that a node binds by itself: a stored name, imports, a definition, an exception, a pattern."""
    if isinstance(node, ast.Name):
        return [node.id] if isinstance(node.ctx, ast.Store) else []
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(item.asname or item.name).partition(".")[0] for item in node.names if item.name != "*"]
    name = getattr(node, "rest", None) if isinstance(node, ast.MatchMapping) else getattr(node, "name", None)
    return [name] if isinstance(name, str) and not isinstance(node, ast.alias) else []


def is_special(name: str) -> bool:
    """Whether a name belongs to the language's machinery."""
    return name.startswith("__") and name.endswith("__")
