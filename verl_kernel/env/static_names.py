# SPDX-License-Identifier: Apache-2.0
"""What the names in a source text stand for: imports and aliases resolved to dotted paths, scope by scope.

`import triton.language as tl; load = tl.load` makes `load` stand for `triton.language.load`. Resolution ignores
the order of statements: within its scope a name stands for everything it is bound to anywhere.
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
_NODES, _DEFINITIONS = 40_000, 400
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SCOPES = (*FUNCTIONS, ast.ClassDef, ast.Module)
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_DEFINING = (*FUNCTIONS, ast.ClassDef)
Key = tuple[int, str]


@dataclass(frozen=True)
class Program:
    """A parsed source text and the class it must define."""

    source: str
    tree: ast.Module
    entry: str

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node, outer ones first.

        Raises:
            ValueError: there are more than any kernel has.
        """
        nodes = list(ast.walk(self.tree))
        if len(nodes) > _NODES or sum(isinstance(node, _DEFINING) for node in nodes) > _DEFINITIONS:
            raise ValueError("there is too much of it to read: write a shorter program")
        return nodes

    @cached_property
    def parents(self) -> dict[int, ast.AST]:
        """The parent of each node, by the node's id."""
        return {id(child): node for node in self.nodes for child in ast.iter_child_nodes(node)}

    @cached_property
    def scopes(self) -> dict[int, ast.AST]:
        """The function, class or module in whose scope each node lies, by the node's id."""
        scopes: dict[int, ast.AST] = {id(self.tree): self.tree}
        for node in self.nodes:  # parents come before their children
            for child in ast.iter_child_nodes(node):
                outside = isinstance(node, _SCOPES) and _evaluated_outside(node, child)
                inner = isinstance(node, _SCOPES) and not outside
                scopes[id(child)] = node if inner else scopes[id(node)]
        return scopes

    @cached_property
    def bound(self) -> set[Key]:
        """Every (scope, name) that some statement binds."""
        bound: set[Key] = set()
        for node in self.nodes:
            scope = id(self.scopes[id(node)])
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                bound.add((scope, node.id))
            elif isinstance(node, ast.arg):
                bound.add((scope, node.arg))
            elif isinstance(node, _NAMED):
                bound.add((scope, node.name))
            elif isinstance(node, ast.Import | ast.ImportFrom):
                bound.update((scope, (item.asname or item.name).partition(".")[0]) for item in node.names)
            elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
                bound.add((scope, node.name))
        return bound

    def key(self, name: str, node: ast.AST) -> Key:
        """The (scope, name) that `name` means at `node`; builtins belong to the module's scope."""
        scope = self.scopes[id(node)]
        here = True
        while scope is not self.tree:
            visible = here or not isinstance(scope, ast.ClassDef)
            if visible and (id(scope), name) in self.bound:
                return id(scope), name
            scope, here = self.scopes[id(scope)], False
        return id(self.tree), name

    def is_global(self, name: str, node: ast.AST) -> bool:
        """Whether `name` at `node` is bound at module level (or not at all)."""
        return self.key(name, node)[0] == id(self.tree)

    @cached_property
    def aliases(self) -> dict[Key, set[str]]:
        """Dotted paths each name stands for.

        Raises:
            ValueError: the text binds names in a way no kernel needs and no reader could follow.
        """
        aliases: dict[Key, set[str]] = defaultdict(set)
        for node in self.nodes:
            for name, path in _imported(node):
                aliases[id(self.scopes[id(node)]), name].add(path)
        bindings = [(self.key(name, at), value) for at, name, value in self.bindings]
        for _ in range(_ROUNDS):
            before = sum(map(len, aliases.values()))
            for key, value in bindings:
                aliases[key] |= self._paths(value, aliases)
                if len(aliases[key]) > _MEANINGS:
                    raise ValueError(f"{key[1]} stands for too many things to follow")
            if before == sum(map(len, aliases.values())):
                return aliases
        raise ValueError("names are aliases of aliases too often to follow")

    @cached_property
    def bindings(self) -> list[tuple[ast.AST, str, ast.AST]]:
        """Plain bindings of names: (where, name, value)."""
        return [(node, name, value) for node in self.nodes for name, value in _bindings(node)]

    def paths(self, node: ast.AST) -> set[str]:
        """Dotted paths an expression stands for; empty where it comes from no import."""
        known = self._known_paths.get(id(node))
        if known is None:
            known = self._known_paths[id(node)] = self._paths(node, self.aliases)
        return known

    @cached_property
    def _known_paths(self) -> dict[int, set[str]]:
        return {}

    def values(self, name: str, node: ast.AST) -> list[ast.AST]:
        """What `name` at `node` is bound to by plain assignments, and functions and classes of that name."""
        return self._values.get(self.key(name, node), [])

    @cached_property
    def _values(self) -> dict[Key, list[ast.AST]]:
        values: dict[Key, list[ast.AST]] = defaultdict(list)
        for at, name, value in self.bindings:
            values[self.key(name, at)].append(value)
        for name, items in self.named.items():
            for item in items:
                values[self.key(name, item)].append(item)
        return values

    @cached_property
    def named(self) -> dict[str, list[ast.AST]]:
        """Functions and classes of the text by name."""
        named: dict[str, list[ast.AST]] = defaultdict(list)
        for node in self.nodes:
            if isinstance(node, _NAMED):
                named[node.name].append(node)
        return named

    def is_jit(self, function: ast.AST) -> bool:
        """Whether a function is a Triton kernel or a helper of one."""
        return id(function) in self._kernels

    def kernels_named(self, node: ast.AST) -> bool:
        """Whether an expression is the name of a kernel of this text."""
        return isinstance(node, ast.Name) and node.id in self._kernel_names

    @cached_property
    def _kernels(self) -> set[int]:
        return {
            id(node)
            for node in self.nodes
            for item in getattr(node, "decorator_list", [])
            if "triton.jit" in self.paths(head(item))
        }

    @cached_property
    def _kernel_names(self) -> set[str]:
        return {name for name, items in self.named.items() if any(self.is_jit(item) for item in items)}

    def _paths(self, node: ast.AST, aliases: dict[Key, set[str]]) -> set[str]:
        suffix: list[str] = []
        while isinstance(node, ast.Attribute):
            suffix.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return set()
        paths = ((*path.split("."), *reversed(suffix)) for path in aliases.get(self.key(node.id, node), ()))
        return {".".join(path[:_DEPTH]) for path in paths}


def head(node: ast.AST) -> ast.AST:
    """What is called: `f` of `f(x)`, and the expression itself where nothing is."""
    return node.func if isinstance(node, ast.Call) else node


def root(node: ast.AST) -> ast.AST:
    """The innermost value of a chain of attributes and subscripts."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node


def _evaluated_outside(scope: ast.AST, child: ast.AST) -> bool:
    """Decorators, defaults, annotations and bases are evaluated where the function or class stands."""
    if isinstance(scope, ast.Module | ast.Lambda):
        return False  # a lambda's defaults are read as its own: names in them are looked up outwards all the same
    if isinstance(child, ast.arguments):
        return False
    return not any(child is item for item in getattr(scope, "body", []))


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        for item in node.names:
            top = item.name.partition(".")[0]
            yield (item.asname, item.name) if item.asname else (top, top)
    elif isinstance(node, ast.ImportFrom) and node.module:
        for item in node.names:
            yield item.asname or item.name, f"{node.module}.{item.name}"


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
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
