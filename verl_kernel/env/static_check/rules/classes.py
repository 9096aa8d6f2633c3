# SPDX-License-Identifier: Apache-2.0
"""Rules on classes: what they inherit, what they may define."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from torch import nn

from verl_kernel.env.static_check.names import ParsedSource
from verl_kernel.env.static_check.syntax import is_special
from verl_kernel.env.static_check.violation import Violation, at

METHODS = frozenset("__init__ __post_init__ __repr__ __str__ __call__ __len__ __iter__ __getitem__".split())
"""Special methods a candidate may define."""
BASES = frozenset(
    (
        "torch.nn.Module",
        "torch.autograd.Function",
        "torch.autograd.function.Function",
        "typing.NamedTuple",
        "abc.ABC",
        "enum.Enum",
        "enum.IntEnum",
        "enum.Flag",
        "enum.IntFlag",
    )
)
_MODULE = frozenset(("torch.nn.Module",))
_OWN = frozenset("forward extra_repr __init__ __repr__ __str__ __len__ training".split())
INTERNALS = frozenset((*dir(nn.Module), *vars(nn.Module()))) - _OWN
"""Parts of nn.Module that a model must leave as they are."""
PRIVATE = frozenset(name for name in INTERNALS if name.startswith("_") and not is_special(name))
_DATA = frozenset(("__slots__", "__constants__", "__doc__"))


def classes(program: ParsedSource) -> Iterator[Violation]:
    """Classes inherit from nn.Module, autograd.Function, a class of the same file or nothing, and define no hooks."""
    modules = _modules(program)
    for node in program.every(ast.ClassDef):
        for base in node.bases:
            if not _may_inherit(program, base, node):
                yield at(node, "base", f"class {node.name} may only inherit from torch.nn.Module")
        if node.keywords:
            yield at(node, "base", f"class {node.name} must not have class keywords")
        if node.name == program.entry and id(node) not in modules:
            yield at(node, "base", f"class {node.name} must inherit from torch.nn.Module")
    yield from _members(program, modules)


def _may_inherit(program: ParsedSource, base: ast.AST, node: ast.ClassDef) -> bool:
    if program.paths(base):
        return program.paths(base) <= BASES
    if not isinstance(base, ast.Name):
        return False
    own, key = program.values(base.id, base), program.key(base.id, base)
    only_classes = program.once("classes", key, lambda: all(isinstance(item, ast.ClassDef) for item in own))
    return base.id == "object" or (only_classes and len(own) > (base.id == node.name))


def _modules(program: ParsedSource) -> set[int]:
    """Classes that inherit from nn.Module, by way of other classes of the text too."""
    heirs = defaultdict(list)
    waiting = []
    for node in program.every(ast.ClassDef):
        if node.bases:
            if any(program.paths(base) & _MODULE for base in node.bases):
                waiting.append(node)
            for base in node.bases:
                heirs[getattr(base, "id", "")].append(node)
    seen = set(map(id, waiting))
    while waiting:
        found = heirs.pop(waiting.pop().name, [])
        waiting.extend(item for item in found if id(item) not in seen)
        seen.update(map(id, found))
    return seen


def _members(program: ParsedSource, modules: set[int]) -> Iterator[Violation]:
    for item in program.every(ast.Name, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef):
        node = program.scope(item).node
        if isinstance(node, ast.ClassDef):
            module = id(node) in modules
            name = item.id if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store) else None
            name = item.name if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else name
            if name is None:
                continue
            if is_special(name) and name not in METHODS | _DATA:
                yield at(item, "method", f"class {node.name} must not define {name}")
            elif module and name in INTERNALS:
                yield at(item, "method", f"class {node.name} must not replace nn.Module's {name}: define forward")


def self_internals(program: ParsedSource) -> Iterator[Violation]:
    """`self.forward = f`, `self._parameters[...]` and the like: a module's internals stay as they are."""
    for node in program.every(ast.Attribute):
        stored = not isinstance(node.ctx, ast.Load)
        if node.attr in PRIVATE or (stored and (node.attr in INTERNALS or node.attr == "forward")):
            yield at(node, "internals", f"{node.attr} belongs to nn.Module: leave it as it is")
