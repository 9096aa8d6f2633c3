# SPDX-License-Identifier: Apache-2.0
"""Imports and aliases resolved to dotted paths.

`import triton.language as tl; load = tl.load` makes `load` stand for `triton.language.load`. Resolution ignores
the order of statements: within its scope a name stands for everything it is bound to anywhere.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from verl_kernel.env.static_check.scopes import Key
from verl_kernel.env.static_check.syntax import attribute_chain

_DEPTH = 12
"""Parts of a dotted path that are told apart; nothing a kernel needs lies deeper."""
_MEANINGS = 32
NOTHING: frozenset[str] = frozenset()
Binding = tuple[ast.AST, str, ast.AST]
"""Where a name is bound, the name, and its value."""


def aliases(
    nodes: Iterable[ast.AST], bindings: Iterable[Binding], key: Callable[[str, ast.AST], Key]
) -> dict[Key, frozenset[str]]:
    """Dotted paths each name stands for.

    Args:
        nodes: all of a text.
        bindings: its plain bindings of names.
        key: the scope that binds a name as a node means it.

    Raises:
        ValueError: a name stands for more things than any kernel needs and a reader could follow.
    """
    found: dict[Key, frozenset[str]] = {}
    waiting: list[Key] = []
    uses: dict[Key, set[tuple[Key, tuple[str, ...]]]] = defaultdict(set)
    for at, name, value in bindings:
        base, suffix = attribute_chain(value)
        if isinstance(base, ast.Name):
            uses[key(base.id, base)].add((key(name, at), tuple(suffix[:_DEPTH])))
    for node in nodes:
        for name, path in _imported(node):
            _learn(found, waiting, key(name, node), frozenset((path,)))
    while waiting:
        known = waiting.pop()
        for user, names in uses[known]:
            _learn(found, waiting, user, extended(found[known], names))
    return found


def _learn(found: dict[Key, frozenset[str]], waiting: list[Key], key: Key, paths: frozenset[str]) -> None:
    before = found.get(key, NOTHING)
    if paths <= before:
        return
    found[key] = before | paths
    if len(found[key]) > _MEANINGS:
        raise ValueError(f"{key[1]} stands for too many things to follow")
    waiting.append(key)


def extended(paths: frozenset[str], suffix: tuple[str, ...]) -> frozenset[str]:
    """Paths with attributes behind them, to the depth that is told apart."""
    if not paths:
        return NOTHING
    return frozenset(".".join((*path.split("."), *suffix)[:_DEPTH] if suffix else [path]) for path in paths)


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        for item in node.names:
            top = item.name.partition(".")[0]
            yield (item.asname, item.name) if item.asname else (top, top)
    elif isinstance(node, ast.ImportFrom) and node.module:
        for item in node.names:
            if item.name != "*":
                yield item.asname or item.name, f"{node.module}.{item.name}"


def plain_bindings(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Names that an assignment binds, each with its value."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _pairs(target, node.value)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        yield from _pairs(node.target, node.value)


def _pairs(target: ast.AST, value: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        for inner, item in zip(target.elts, value.elts, strict=False):
            if isinstance(inner, ast.Name):
                yield inner.id, item
