# SPDX-License-Identifier: Apache-2.0
"""A parsed source text: its nodes and the meanings of its names by scope; and the type of a rule on it.

Each query takes time proportional to the text, in any style of source, because results are cached.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, cast

from verl_kernel.env.static_check.scopes import COMPREHENSIONS, FUNCTIONS, Key, Scope, Scopes

OPERATORS = frozenset(("torch.library.custom_op", "torch.library.triton_op"))
"""Decorators that name a function as an operator; `tamper/named_ops.py` stands in their places."""
_REGISTERED = frozenset(("register_fake", "register_kernel", "register_autograd"))

# Queries about single nodes of a syntax tree.


def head(node: ast.AST) -> ast.AST:
    """Return the called expression: `f` of `f(x)`, or the node itself if it is not a call."""
    return node.func if isinstance(node, ast.Call) else node


def root(node: ast.AST) -> ast.AST:
    """Return the innermost value of a chain of attributes and subscripts."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node


def attribute_chain(node: ast.AST) -> tuple[ast.AST, list[str]]:
    """Return the innermost value of a chain of attributes, and these in order: `a` and `["b", "c"]` of `a.b.c`."""
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
    return isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant)


def loop(node: ast.AST) -> ast.For | ast.comprehension | None:
    """Return the loop that a node is or begins; the first one of a comprehension is no node of its own in a scope."""
    if isinstance(node, COMPREHENSIONS):
        return node.generators[0]
    return node if isinstance(node, ast.For | ast.comprehension) else None


def bound_names(node: ast.AST) -> list[str]:
    """Return the names that a node itself binds: a stored name, imports, a definition, an exception, a pattern."""
    if isinstance(node, ast.Name):
        return [node.id] if isinstance(node.ctx, ast.Store) else []
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(item.asname or item.name).partition(".")[0] for item in node.names if item.name != "*"]
    name = getattr(node, "rest", None) if isinstance(node, ast.MatchMapping) else getattr(node, "name", None)
    return [name] if isinstance(name, str) and not isinstance(node, ast.alias) else []


def is_special(name: str) -> bool:
    """Whether a name has the form of Python's special names (`__x__`)."""
    return name.startswith("__") and name.endswith("__")


# Imports and aliases resolved to dotted paths.
#
# `import triton.language as tl; load = tl.load` makes `load` an alias of `triton.language.load`. Resolution ignores the
# order of statements: within its scope a name means everything it is bound to anywhere.


_DEPTH = 12
"""Number of parts of a dotted path that are distinguished; no kernel needs deeper paths."""
_MEANINGS = 32
NOTHING: frozenset[str] = frozenset()
Binding = tuple[ast.AST, str, ast.AST]
"""The node that binds a name, the name, and its value."""


def aliases(
    nodes: Iterable[ast.AST], bindings: Iterable[Binding], key: Callable[[str, ast.AST], Key]
) -> dict[Key, frozenset[str]]:
    """Resolve each name to the dotted paths that it may mean.

    Args:
        nodes: all nodes of a text.
        bindings: plain bindings of names in the text.
        key: returns the scope that binds a name at a node.

    Raises:
        ValueError: a name has more meanings than any kernel needs.
    """
    paths_of: dict[Key, frozenset[str]] = {}
    waiting: list[Key] = []
    uses: dict[Key, set[tuple[Key, tuple[str, ...]]]] = defaultdict(set)
    for at, name, value in bindings:
        base, suffix = attribute_chain(value)
        if isinstance(base, ast.Name):
            uses[key(base.id, base)].add((key(name, at), tuple(suffix[:_DEPTH])))
    for node in nodes:
        for name, path in _imported(node):
            _learn(paths_of, waiting, key(name, node), frozenset((path,)))
    while waiting:
        renamed = waiting.pop()
        for user, names in uses[renamed]:
            _learn(paths_of, waiting, user, extended(paths_of[renamed], names))
    return paths_of


def _learn(paths_of: dict[Key, frozenset[str]], waiting: list[Key], key: Key, paths: frozenset[str]) -> None:
    before = paths_of.get(key, NOTHING)
    if paths <= before:
        return
    paths_of[key] = before | paths
    if len(paths_of[key]) > _MEANINGS:  # bounds the time that a hostile text can take
        raise ValueError(f"{key[1]} has too many possible values to analyse")
    waiting.append(key)


def extended(paths: frozenset[str], suffix: tuple[str, ...]) -> frozenset[str]:
    """Return paths with attributes appended, up to `_DEPTH` parts."""
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
    """Yield the names that an assignment binds, each with its value."""
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


_NODES = 50_000
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
T = TypeVar("T")


@dataclass(frozen=True)
class ParsedSource:
    """A parsed source text and the class it must define."""

    source: str
    tree: ast.Module
    entry: str

    @cached_property
    def _scopes(self) -> Scopes:
        scopes = Scopes(self.source, self.tree)
        if len(scopes.nodes) > _NODES:
            raise ValueError("there is too much of it to read: write a shorter program")
        return scopes

    @property
    def nodes(self) -> list[ast.AST]:
        """Every node that has a position in the text, outer ones first.

        Raises:
            ValueError: there are more nodes than any kernel has, or their scopes cannot be resolved.
        """
        return self._scopes.nodes

    def every(self, *kinds: type[ast.AST]) -> list[Any]:
        """Return every node of some exact types."""
        return [node for kind in kinds for node in self._by_kind.get(kind, [])]

    @cached_property
    def _by_kind(self) -> dict[type[ast.AST], list[Any]]:
        by_kind: dict[type[ast.AST], list[Any]] = defaultdict(list)
        for node in self.nodes:
            by_kind[type(node)].append(node)
        return by_kind

    def uses(self, start: str) -> bool:
        """Whether any name may mean a path that begins with `start`, or a parent of such a path."""
        return any(path.startswith(start) or start.startswith(f"{path}.") for path in self._all_paths)

    @cached_property
    def _all_paths(self) -> frozenset[str]:
        return frozenset().union(*self.aliases.values())

    @property
    def parents(self) -> dict[int, ast.AST]:
        """The parent of each node, by the node's id."""
        return self._scopes.parents

    def scope(self, node: ast.AST) -> Scope:
        """Return the scope in which a node is evaluated."""
        return self._scopes.of[id(node)]

    def block(self, node: ast.AST) -> ast.AST:
        """Return the function, lambda, class or module in which a node is evaluated, but no comprehension."""
        scope = self.scope(node)
        while scope.targets is not None and scope.parent is not None:
            scope = scope.parent
        return scope.node

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the text, numbered as in Python."""
        return self.source.replace("\r\n", "\n").replace("\r", "\n").split("\n")

    @property
    def module(self) -> Scope:
        """The outermost scope."""
        return self._scopes.module

    def in_function(self, node: ast.AST) -> bool:
        """Whether a node runs only when a function is called."""
        scope: Scope | None = self.scope(node)
        while scope is not None and not isinstance(scope.node, FUNCTIONS):
            scope = scope.parent
        return scope is not None

    def once(self, question: str, about: object, answer: Callable[[], T]) -> T:
        """Return the cached answer to a question about an object, computed at the first call."""
        if (question, about) not in self._answers:
            self._answers[question, about] = answer()
        return cast(T, self._answers[question, about])

    @cached_property
    def _answers(self) -> dict[tuple[str, object], object]:
        return {}

    def is_evaluated(self, node: ast.AST) -> bool:
        """Whether Python evaluates a node; False for annotations that it keeps as text."""
        return id(node) not in self._scopes.unevaluated

    def key(self, name: str, node: ast.AST) -> Key:
        """Return the scope that binds `name` at `node`; builtins belong to the module."""
        return self._scopes.key(name, node)

    def is_global(self, name: str, node: ast.AST) -> bool:
        """Whether `name` at `node` is bound at module level (or not at all)."""
        return self.key(name, node)[0] is self._scopes.module

    def may_be_builtin(self, node: ast.Name) -> bool:
        """Whether a name may mean a builtin: a name bound in a module or class may still be unbound when it is read."""
        scope = self.key(node.id, node)[0]
        return scope is self._scopes.module or scope.is_class

    def is_builtin(self, node: ast.AST) -> bool:
        """Whether an expression is a name that no statement binds."""
        return isinstance(node, ast.Name) and not self._scopes.is_bound(self.key(node.id, node))

    @cached_property
    def aliases(self) -> dict[Key, frozenset[str]]:
        """The dotted paths that each name may mean.

        Raises:
            ValueError: a name has more meanings than any kernel needs.
        """
        return aliases(self.nodes, self.bindings, self.key)

    @cached_property
    def bindings(self) -> list[tuple[ast.AST, str, ast.AST]]:
        """Plain bindings of names: (where, name, value)."""
        return [(node, name, value) for node in self.nodes for name, value in plain_bindings(node)]

    def paths(self, node: ast.AST) -> frozenset[str]:
        """Return the dotted paths that an expression may mean; empty if it does not come from an import."""
        chain = []
        while isinstance(node, ast.Attribute) and id(node) not in self._known_paths:
            chain.append(node)
            node = node.value
        paths = self._known_paths.get(id(node))
        if paths is None:
            paths = self.aliases.get(self.key(node.id, node), NOTHING) if isinstance(node, ast.Name) else NOTHING
            self._known_paths[id(node)] = paths
        for attribute in reversed(chain):
            paths = self._known_paths[id(attribute)] = extended(paths, (attribute.attr,))
        return paths

    @cached_property
    def _known_paths(self) -> dict[int, frozenset[str]]:
        return {}

    @cached_property
    def parameters(self) -> set[Key]:
        """Parameters of functions and lambdas."""
        return {self.key(node.arg, node) for node in self.every(ast.arg)}

    @cached_property
    def defined(self) -> set[Key]:
        """Names that a definition, an import, a handler of exceptions or a pattern binds."""
        definitions = (node for node in self.nodes if not isinstance(node, ast.Name))
        return {self.key(name, node) for node in definitions for name in bound_names(node)}

    @cached_property
    def constexprs(self) -> set[str]:
        """Parameters that are `tl.constexpr` in every kernel that has them: plain values, never tensors."""
        constant: set[str] = set()
        plain: set[str] = set()
        for node in self.every(ast.arg):
            if self.is_jit(self.scope(node).node):
                is_constexpr = node.annotation is not None and "triton.language.constexpr" in self.paths(
                    node.annotation
                )
                (constant if is_constexpr else plain).add(node.arg)
        return constant - plain

    @cached_property
    def stores(self) -> Counter[Key]:
        """Number of statements that bind a name other than by a definition or an import."""
        names = (node for node in self.every(ast.Name) if not isinstance(node.ctx, ast.Load))
        return Counter(self.key(node.id, node) for node in names)

    def occurrences(self, name: ast.Name) -> list[ast.Name]:
        """Return all nodes with the same name and scope as this one."""
        return self._occurrences[self.key(name.id, name)]

    @cached_property
    def _occurrences(self) -> dict[Key, list[ast.Name]]:
        occurrences: dict[Key, list[ast.Name]] = defaultdict(list)
        for node in self.every(ast.Name):
            occurrences[self.key(node.id, node)].append(node)
        return occurrences

    def values(self, name: str, node: ast.AST) -> list[ast.AST]:
        """Return the values that plain assignments bind to `name` at `node`, and functions and classes of that name."""
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
        for node in self.every(*_NAMED):
            named[node.name].append(node)
        return named

    @cached_property
    def class_names(self) -> set[str]:
        """Names of the text's classes."""
        return {node.name for node in self.every(ast.ClassDef)}

    def is_jit(self, function: ast.AST) -> bool:
        """Whether a function is a Triton kernel or a helper of one."""
        return id(function) in self._kernels

    def kernels_named(self, node: ast.AST) -> bool:
        """Whether an expression is the name of a kernel of this text."""
        return isinstance(node, ast.Name) and node.id in self._kernel_names

    def registers(self, node: ast.AST) -> bool:
        """Whether an expression is `f.register_kernel` or the like, of a function that is named as an operator."""
        if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
            return False
        return node.attr in _REGISTERED and node.value.id in self._operators

    @cached_property
    def _operators(self) -> set[str]:
        decorated = ((node, item) for node in self.every(ast.FunctionDef) for item in node.decorator_list)
        return {node.name for node, item in decorated if self.paths(head(item)) & OPERATORS}

    @cached_property
    def _kernels(self) -> set[int]:
        decorated = {
            id(node)
            for node in self.every(*_NAMED)
            for item in node.decorator_list
            if "triton.jit" in self.paths(head(item))
        }
        keys = {
            self.key(item.id, item)
            for call in self.every(ast.Call)
            if "triton.jit" in self.paths(call.func)
            for item in call.args
            if isinstance(item, ast.Name)
        }
        return decorated | {id(value) for key in keys for value in self._values.get(key, [])}

    @cached_property
    def _kernel_names(self) -> set[str]:
        return {name for name, items in self.named.items() if any(self.is_jit(item) for item in items)}

    def enclosed(self, marked: Callable[[ast.AST], bool]) -> Iterator[tuple[ast.AST, ast.AST]]:
        """Yield the nodes evaluated within marked functions, with the outermost of these, in one pass over the text."""
        inside: dict[Scope, ast.AST | None] = {}
        for node in self.nodes:
            scope = self.scope(node)
            if scope not in inside:
                outer = inside.get(scope.parent) if scope.parent is not None else None
                own = scope.node if isinstance(scope.node, FUNCTIONS) and marked(scope.node) else None
                inside[scope] = outer or own
            if (function := inside[scope]) is not None:
                yield node, function


@dataclass(frozen=True)
class Violation:
    """One reason to refuse a source text."""

    rule: str
    line: int
    reason: str


Rule = Callable[[ParsedSource], Iterator[Violation]]


def at(node: ast.AST, rule: str, reason: str) -> Violation:
    """Return a violation on the line of `node`."""
    return Violation(rule, getattr(node, "lineno", 1), reason)
