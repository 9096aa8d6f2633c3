# SPDX-License-Identifier: Apache-2.0
"""What the names in a source text stand for: imports and aliases resolved to dotted paths.

`import triton.language as tl; load = tl.load` makes `load` stand for `triton.language.load`. Resolution ignores
the order of statements: a name stands for everything it is bound to anywhere.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_DEPTH = 12
"""Parts of a dotted path that are told apart; nothing a kernel needs lies deeper."""
_MEANINGS, _ROUNDS = 32, 32


@dataclass(frozen=True)
class Program:
    """A parsed source text and the class it must define."""

    source: str
    tree: ast.Module
    entry: str

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node, outer ones first."""
        return list(ast.walk(self.tree))

    @cached_property
    def aliases(self) -> dict[str, set[str]]:
        """Dotted paths each name stands for.

        Raises:
            ValueError: the text binds names in a way no kernel needs and no reader could follow.
        """
        aliases: dict[str, set[str]] = defaultdict(set)
        for name, path in _imported(self.nodes):
            aliases[name].add(path)
        bindings = list(_bindings(self.nodes))
        for _ in range(_ROUNDS):
            before = sum(map(len, aliases.values()))
            for name, value in bindings:
                aliases[name] |= _paths(value, aliases)
                if len(aliases[name]) > _MEANINGS:
                    raise ValueError(f"{name} stands for too many things to follow")
            if before == sum(map(len, aliases.values())):
                return aliases
        raise ValueError("names are aliases of aliases too often to follow")

    def paths(self, node: ast.AST) -> set[str]:
        """Dotted paths an expression stands for; empty where it comes from no import."""
        return _paths(node, self.aliases)

    def is_jit(self, function: ast.AST) -> bool:
        """Whether a function is a Triton kernel or a helper of one."""
        decorators = getattr(function, "decorator_list", [])
        heads = [item.func if isinstance(item, ast.Call) else item for item in decorators]
        return any("triton.jit" in self.paths(head) for head in heads)


def _paths(node: ast.AST, aliases: dict[str, set[str]]) -> set[str]:
    suffix: list[str] = []
    while isinstance(node, ast.Attribute) and len(suffix) < _DEPTH:
        suffix.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in aliases:
        return set()
    paths = ((path, *reversed(suffix)) for path in aliases[node.id])
    return {".".join(".".join(path).split(".")[:_DEPTH]) for path in paths}


def _imported(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            for item in node.names:
                root = item.name.partition(".")[0]
                yield (item.asname, item.name) if item.asname else (root, root)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for item in node.names:
                yield item.asname or item.name, f"{node.module}.{item.name}"


def _bindings(nodes: list[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    for node in nodes:
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
