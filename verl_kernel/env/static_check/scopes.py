# SPDX-License-Identifier: Apache-2.0
"""Finds the scope that binds each name of a source text, as Python's own compiler does.

The compiler's symbol tables say which names are local, free or global; here they are matched with the scopes of the
syntax tree. A text that cannot be matched is refused. The module needs only the standard library.
"""

from __future__ import annotations

import ast
import symtable
import sys
import warnings
from collections import defaultdict, deque
from collections.abc import Iterator

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_OWN_SCOPE = (*FUNCTIONS, ast.ClassDef, *COMPREHENSIONS)
_SHARED = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
"""Nodes without a position: the parser shares one `ast.Load` in a whole tree."""
_TABLE_NAMES: dict[type[ast.AST], str] = {
    ast.Lambda: "lambda",
    ast.ListComp: "listcomp",
    ast.SetComp: "setcomp",
    ast.DictComp: "dictcomp",
    ast.GeneratorExp: "genexpr",
}
_INLINED = sys.version_info >= (3, 12)
"""Whether Python inlines comprehensions other than generators: then the enclosing table holds their marked names."""
_COMPREHENSION_ONLY = 2 << 8
_DEFERRED = sys.version_info >= (3, 14)
"""Whether Python evaluates annotations when somebody asks for them (PEP 649), in a scope of their own."""
Waiting = dict[tuple[str, str, int], "deque[symtable.SymbolTable]"]


class Scope:
    """A module, class, function, lambda or comprehension."""

    def __init__(self, node: ast.AST, parent: Scope | None, table: symtable.SymbolTable) -> None:
        self.node, self.parent, self.table = node, parent, table
        outer = parent.owner if parent is not None else ""
        self.owner: str = node.name.lstrip("_") if isinstance(node, ast.ClassDef) else outer
        """The class after which private names are mangled."""
        self.targets = set(map(self.mangled, _targets(node))) if isinstance(node, COMPREHENSIONS) else None
        self.resolved: dict[str, Scope] = {}

    @property
    def is_class(self) -> bool:
        """Whether the scope is a class, whose names may still be unbound when they are read."""
        return isinstance(self.node, ast.ClassDef)

    def mangled(self, name: str) -> str:
        """Return the compiler's form of a name: `__x` in a class C is `_C__x`."""
        if name.startswith("__") and not name.endswith("__") and self.owner:
            return f"_{self.owner}{name}"
        return name

    def symbol(self, name: str) -> symtable.Symbol | None:
        """Return the compiler's symbol of a name in this scope, None if it has none."""
        # `lookup` reads all scopes inside this one for each name, which is quadratic.
        flags: int | None = self.table._table.symbols.get(name)  # type: ignore[attr-defined]
        if flags is None or (_INLINED and flags & _COMPREHENSION_ONLY):
            return None
        return symtable.Symbol(name, flags, module_scope=self.table.get_type() == "module")

    def binds(self, name: str) -> bool:
        """Whether a statement binds a name in this scope itself."""
        if self.targets is not None:
            return name in self.targets
        symbol = self.symbol(name)
        return symbol is not None and symbol.is_local() and not _declared(symbol)


Key = tuple[Scope, str]
"""A name and the scope that binds it."""


class Scopes:
    """The scopes of a tree, matched with the symbol tables of its text.

    Raises:
        ValueError: tree and tables do not match.
        SyntaxError: the text's names contradict each other (`return` outside a function, `nonlocal` of nothing).
    """

    def __init__(self, source: str, tree: ast.Module) -> None:
        self.module = Scope(tree, None, _table(_without_removed(source, tree)))
        self.of: dict[int, Scope] = {id(tree): self.module}
        self.parents: dict[int, ast.AST] = {}
        self.nodes: list[ast.AST] = [tree]
        self.unevaluated: set[int] = set()
        """Nodes of annotations that Python never evaluates, by id."""
        self._deferred: set[int] = set()
        """Nodes of annotations that it evaluates in a scope of their own, by id."""
        self._lazy = any(isinstance(item, ast.ImportFrom) and item.module == "__future__" for item in tree.body)
        self._waiting: dict[int, Waiting] = {}
        self._match(tree)

    def key(self, name: str, node: ast.AST) -> Key:
        """Return the scope that binds `name` at `node`, and the compiler's form of the name."""
        scope = self.of[id(node)]
        name = scope.mangled(name)
        owner = scope.resolved.get(name)
        if owner is None:
            owner = scope.resolved[name] = self._resolve(scope, name, node)
        return owner, name

    def is_bound(self, key: tuple[Scope, str]) -> bool:
        """Whether any statement binds the name; otherwise it is a builtin or undefined."""
        return key[0] is not self.module or self.module.binds(key[1])

    def _resolve(self, scope: Scope, name: str, node: ast.AST) -> Scope:
        if scope.binds(name):
            return scope
        if scope.targets is not None:
            return self._outwards(scope, name)
        symbol = scope.symbol(name)
        if symbol is None:
            is_apart = id(node) in self.unevaluated or id(node) in self._deferred
            if not is_apart and scope is not self.module:
                raise ValueError(f"{name} cannot be followed: write it in a simpler way")
            return self._outwards(scope, name)
        return self._outwards(scope, name) if symbol.is_free() or symbol.is_nonlocal() else self.module

    def _outwards(self, scope: Scope, name: str) -> Scope:
        """Return the enclosing function or comprehension that binds a name, or the module; classes are skipped."""
        while scope.parent is not None and scope.parent.parent is not None:
            scope = scope.parent
            if scope.is_class:
                continue
            if scope.binds(name):
                return scope
            symbol = scope.symbol(name) if scope.targets is None else None
            if symbol is not None and symbol.is_declared_global():
                return self.module
        return self.module

    def _match(self, tree: ast.Module) -> None:
        """Walk the tree in the compiler's order and assign each scope its table."""
        self._await(self.module.table)
        waiting: list[tuple[ast.AST, Scope, bool]] = [(child, self.module, False) for child in reversed(tree.body)]
        self.parents.update((id(child), tree) for child in tree.body)
        while waiting:
            node, scope, entering = waiting.pop()
            if type(node).__name__ == "TemplateStr":  # Python 3.14; its parts hold the text of expressions
                raise ValueError("a t-string cannot be followed: write it in a simpler way")
            if not entering:
                self.of[id(node)] = scope
                self.nodes.append(node)
            outer, inner = self._children(node, scope)
            if not isinstance(node, _OWN_SCOPE):
                waiting.extend((child, scope, False) for child in reversed(inner))
            elif entering:
                own = Scope(node, scope, self._take(node, scope))
                waiting.extend((child, own, False) for child in reversed(inner))
            else:
                waiting.append((node, scope, True))
                waiting.extend((child, scope, False) for child in reversed(outer))
        if any(tables for waiters in self._waiting.values() for tables in waiters.values()):
            raise ValueError("its scopes cannot be followed: write it in a simpler way")

    def _children(self, node: ast.AST, scope: Scope) -> tuple[list[ast.AST], list[ast.AST]]:
        """Return the children evaluated outside a node's own scope, and those evaluated in it."""
        outer, inner = _divided(node)
        for child in (*outer, *inner):
            self.parents[id(child)] = node
        apart = self.unevaluated if self._lazy else self._deferred if _DEFERRED else set[int]()
        for nodes in (self.unevaluated, self._deferred):
            if id(node) in nodes:
                nodes.update(map(id, inner))
        if isinstance(node, ast.AnnAssign):
            local = isinstance(scope.node, FUNCTIONS) and isinstance(node.target, ast.Name)
            (self.unevaluated if local else apart).add(id(node.annotation))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            apart.update(map(id, _annotations(node)))
        return outer, inner

    def _await(self, table: symtable.SymbolTable) -> None:
        waiting: Waiting = defaultdict(deque)
        # A scope of annotations is none of the tree's: what would be a scope in it is refused.
        for child in (child for child in table.get_children() if child.get_type() != "annotation"):
            waiting[child.get_type(), child.get_name(), child.get_lineno()].append(child)
        self._waiting[id(table)] = waiting

    def _take(self, node: ast.AST, scope: Scope) -> symtable.SymbolTable:
        if id(node) in self._deferred:
            raise ValueError("a scope in an annotation cannot be followed: write it in a simpler way")
        if _INLINED and isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp):
            return scope.table
        kind = "class" if isinstance(node, ast.ClassDef) else "function"
        name = _TABLE_NAMES.get(type(node), str(getattr(node, "name", "")))
        tables = self._waiting[id(scope.table)].get((kind, name, getattr(node, "lineno", 0)))
        if not tables:
            raise ValueError(f"the scope of {name} cannot be followed: write it in a simpler way")
        table = tables.popleft()
        self._await(table)
        return table


def _declared(symbol: symtable.Symbol) -> bool:
    return symbol.is_declared_global() or symbol.is_nonlocal()


def _targets(node: ast.AST) -> Iterator[str]:
    waiting: list[ast.AST] = [generator.target for generator in getattr(node, "generators", [])]
    while waiting:
        item = waiting.pop()
        if isinstance(item, ast.Name):
            yield item.id
        elif isinstance(item, ast.Starred):
            waiting.append(item.value)
        elif isinstance(item, ast.Tuple | ast.List):
            waiting.extend(item.elts)


def _divided(node: ast.AST) -> tuple[list[ast.AST], list[ast.AST]]:
    """Return children evaluated in the surrounding scope and children of the scope, in the compiler's order."""
    if isinstance(node, FUNCTIONS):
        arguments = node.args
        defaults = [*arguments.defaults, *filter(None, arguments.kw_defaults)]
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
        outside = [] if isinstance(node, ast.Lambda) else [*_annotations(node), *node.decorator_list]
        return [*defaults, *outside], [arguments, *body]
    if isinstance(node, ast.ClassDef):
        return [*node.bases, *node.keywords, *node.decorator_list], [*node.body]
    if isinstance(node, COMPREHENSIONS):
        first, *inner = node.generators
        elements = [node.value, node.key] if isinstance(node, ast.DictComp) else [node.elt]
        return [first.iter], [first.target, *first.ifs, *inner, *elements]
    return [], [child for child in _plain_children(node) if not isinstance(child, _SHARED)]


def _plain_children(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.arguments):  # defaults and annotations belong to the surrounding scope
        yield from (*node.posonlyargs, *node.args, *filter(None, (node.vararg,)), *node.kwonlyargs)
        yield from filter(None, (node.kwarg,))
    elif isinstance(node, ast.Try) or type(node).__name__ == "TryStar":
        yield from (*node.body, *node.orelse, *node.handlers, *node.finalbody)  # type: ignore[attr-defined]
    elif not isinstance(node, ast.arg):
        yield from ast.iter_child_nodes(node)


def _annotations(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.AST]:
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args, arguments.vararg, arguments.kwarg, *arguments.kwonlyargs]
    return [item for item in (*(arg.annotation for arg in named if arg is not None), node.returns) if item is not None]


def _table(source: str) -> symtable.SymbolTable:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about a candidate's invalid escapes must not reach the output
        return symtable.symtable(source, "candidate", "exec")


def _without_removed(source: str, tree: ast.Module) -> str:
    """Return the text with `pass` where the parser removed the body of a main block."""
    bodies = [node.body[0] for node in tree.body if isinstance(node, ast.If)]
    removed = [node for node in bodies if isinstance(node, ast.Pass) and _is_longer_than_its_word(node)]
    if not removed:
        return source
    lines = source.replace("\r\n", "\n").replace("\r", "\n").encode().split(b"\n")
    for node in removed:
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        following = lines[last][node.end_col_offset or 0 :].lstrip(b" \t\f;")
        lines[first] = lines[first][: node.col_offset] + b"pass"
        lines[first + 1 : last + 1] = [b""] * (last - first)
        lines[last] += b"  " + following
    return b"\n".join(lines).decode()


def _is_longer_than_its_word(node: ast.Pass) -> bool:
    return node.end_lineno != node.lineno or (node.end_col_offset or 0) - node.col_offset != len("pass")
