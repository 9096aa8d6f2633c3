# SPDX-License-Identifier: Apache-2.0
"""Rules on classes: what they inherit, what they may define."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch import nn

from verl_kernel.env.static_language import BASES, METHODS, is_special
from verl_kernel.env.static_names import Program
from verl_kernel.env.static_violation import Violation, at

_MODULE = frozenset(("torch.nn.Module",))
_OWN = frozenset("forward extra_repr __init__ __repr__ __str__ __len__ training".split())
INTERNALS = frozenset((*dir(nn.Module), *vars(nn.Module()))) - _OWN
"""Parts of nn.Module that a model must leave as they are."""
PRIVATE = frozenset(name for name in INTERNALS if name.startswith("_") and not is_special(name))
_DATA = frozenset(("__slots__", "__constants__", "__doc__"))


def classes(program: Program) -> Iterator[Violation]:
    """Classes inherit from nn.Module, autograd.Function, a class of the same file or nothing, and define no hooks."""
    for node in program.nodes:
        if not isinstance(node, ast.ClassDef):
            continue
        for base in node.bases:
            if not _may_inherit(program, base, node):
                yield at(node, "base", f"class {node.name} may only inherit from torch.nn.Module")
        if node.keywords:
            yield at(node, "base", f"class {node.name} must not have class keywords")
        if node.name == program.entry and not _is_module(program, node):
            yield at(node, "base", f"class {node.name} must inherit from torch.nn.Module")
        yield from _members(program, node)


def _may_inherit(program: Program, base: ast.AST, node: ast.ClassDef) -> bool:
    if program.paths(base):
        return program.paths(base) <= BASES
    if not isinstance(base, ast.Name):
        return False
    own = [item for item in program.named.get(base.id, []) if item is not node]
    return base.id == "object" or (bool(own) and all(isinstance(item, ast.ClassDef) for item in own))


def _is_module(program: Program, node: ast.ClassDef) -> bool:
    """Whether a class inherits from nn.Module, by way of other classes of the text too."""
    waiting, seen = [node], {id(node)}
    while waiting:
        for base in waiting.pop().bases:
            if program.paths(base) & _MODULE:
                return True
            for item in program.named.get(getattr(base, "id", ""), []):
                if isinstance(item, ast.ClassDef) and id(item) not in seen:
                    seen.add(id(item))
                    waiting.append(item)
    return False


def _members(program: Program, node: ast.ClassDef) -> Iterator[Violation]:
    module = _is_module(program, node)
    for item in node.body:
        for name in _defined(item):
            if is_special(name) and name not in METHODS | _DATA:
                yield at(item, "method", f"class {node.name} must not define {name}")
            elif module and name in INTERNALS:
                yield at(item, "method", f"class {node.name} must not replace nn.Module's {name}: define forward")


def _defined(item: ast.AST) -> list[str]:
    if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [item.name]
    return [node.id for node in ast.walk(item) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]


def self_internals(program: Program) -> Iterator[Violation]:
    """`self.forward = f`, `self._parameters[...]` and the like: a module's internals stay as they are."""
    for node in program.nodes:
        if not isinstance(node, ast.Attribute):
            continue
        stored = not isinstance(node.ctx, ast.Load)
        if node.attr in PRIVATE or (stored and (node.attr in INTERNALS or node.attr == "forward")):
            yield at(node, "internals", f"{node.attr} belongs to nn.Module: leave it as it is")
