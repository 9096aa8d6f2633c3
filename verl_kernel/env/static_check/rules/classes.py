# SPDX-License-Identifier: Apache-2.0
"""Rules on classes: their bases and the members that they may define."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from torch import nn

from verl_kernel.env.static_check.allowlist import SETTINGS
from verl_kernel.env.static_check.names import ParsedSource, Violation, at, is_special, root

METHODS = frozenset("__init__ __post_init__ __repr__ __str__ __call__ __len__ __iter__ __getitem__".split())
"""Special methods that a candidate may define."""
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
_OWN = frozenset("forward extra_repr __init__ __repr__ __str__ __len__ training".split())
INTERNALS = frozenset((*dir(nn.Module), *vars(nn.Module()))) - _OWN
"""Members of nn.Module that a model must not change."""
PRIVATE = frozenset(name for name in INTERNALS if name.startswith("_") and not is_special(name))
_DATA = frozenset(("__slots__", "__constants__", "__doc__"))


def classes(program: ParsedSource) -> Iterator[Violation]:
    """Yield classes with a base that is neither of torch nor of the file, and members that are hooks."""
    modules = _modules(program)
    for node in program.every(ast.ClassDef):
        for base in node.bases:
            if not _may_inherit(program, base, node):
                yield at(
                    node,
                    "base",
                    f"class {node.name} may only inherit from torch.nn.Module or another module of torch.nn",
                )
        if node.keywords:
            yield at(node, "base", f"class {node.name} must not have class keywords")
        if node.name == program.entry and id(node) not in modules:
            yield at(node, "base", f"class {node.name} must inherit from torch.nn.Module")
    yield from _members(program, modules)


def is_layer(path: str) -> bool:
    """Whether a dotted path is a module of torch; those that change their class at their first call are none."""
    start, _, name = path.rpartition(".")
    layer = vars(nn).get(name) if start == "torch.nn" and not name.startswith("Lazy") else None
    return isinstance(layer, type) and issubclass(layer, nn.Module)


def _may_inherit(program: ParsedSource, base: ast.AST, node: ast.ClassDef) -> bool:
    if program.paths(base):
        return all(path in BASES or is_layer(path) for path in program.paths(base))
    if not isinstance(base, ast.Name):
        return False
    own, key = program.values(base.id, base), program.key(base.id, base)
    only_classes = program.once("classes", key, lambda: all(isinstance(item, ast.ClassDef) for item in own))
    return base.id == "object" or (only_classes and len(own) > (base.id == node.name))


def _modules(program: ParsedSource) -> set[int]:
    """Return the ids of classes that inherit from nn.Module, directly or through other classes of the text."""
    heirs = defaultdict(list)
    waiting = []
    for node in program.every(ast.ClassDef):
        if node.bases:
            if any(map(is_layer, set().union(*(program.paths(base) for base in node.bases)))):
                waiting.append(node)
            for base in node.bases:
                heirs[getattr(base, "id", "")].append(node)
    visited = set(map(id, waiting))
    while waiting:
        subclasses = heirs.pop(waiting.pop().name, [])
        waiting.extend(item for item in subclasses if id(item) not in visited)
        visited.update(map(id, subclasses))
    return visited


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
    """Yield changes of a module's internals, such as `self.forward = f` and `self._parameters[...]`."""
    for node in program.every(ast.Attribute):
        stored = not isinstance(node.ctx, ast.Load)
        if node.attr in PRIVATE or (stored and (node.attr in INTERNALS or node.attr == "forward")):
            yield at(node, "internals", f"{node.attr} belongs to nn.Module: leave it as it is")


def assignments(program: ParsedSource) -> Iterator[Violation]:
    """Yield changes of imported objects, and of module-level names by functions."""
    for node in program.every(ast.Attribute, ast.Subscript):
        if not isinstance(node.ctx, ast.Load):
            paths = program.paths(node.value)
            target = {f"{path}.{node.attr}" for path in paths} if isinstance(node, ast.Attribute) else paths
            if paths and not target <= SETTINGS:
                yield at(node, "assignment", f"{sorted(paths)[0]} must not be changed")
            elif not paths and (reason := _foreign_store(program, node)):
                yield at(node, "assignment", reason)


def _foreign_store(program: ParsedSource, node: ast.Attribute | ast.Subscript) -> str:
    base = root(node)
    if not isinstance(base, ast.Name):
        return "assign to attributes of self only" if isinstance(node, ast.Attribute) else ""
    in_function = program.block(node) is not program.tree
    if in_function and program.is_global(base.id, base):
        return f"{base.id} is state outside the model, which functions must not change: keep state on self"
    if isinstance(node, ast.Attribute) and not _may_store(program, node, base):
        return f"attribute {node.attr} of {base.id} must not be set: assign to attributes of self only"
    return ""


def _may_store(program: ParsedSource, node: ast.Attribute, base: ast.Name) -> bool:
    """Whether the target is an attribute of self, of ctx, or of a call's result, or `.data`, `.weight` and the like."""
    if node.value is not base and node.attr not in ("data", "requires_grad", "weight", "bias", "block_shape"):
        return False
    return (node.attr == "block_shape" and _is_item(node.value, base)) or may_store(program, base)


def may_store(program: ParsedSource, base: ast.AST) -> bool:
    """Whether attributes of an expression may be set: it is `self`, or the result of a call that creates objects."""
    if not isinstance(base, ast.Name) or program.paths(base):
        return False
    in_function = program.block(base) is not program.tree
    if in_function and program.is_global(base.id, base):
        return False
    if _is_first_parameter(program, base):
        return True
    return program.once("made", program.key(base.id, base), lambda: _is_made(program, program.values(base.id, base)))


def _is_item(node: ast.AST, base: ast.Name) -> bool:
    """Whether a node is `base[...]`: a hook before a launch sets the block shape of a descriptor argument."""
    return isinstance(node, ast.Subscript) and node.value is base


def _is_made(program: ParsedSource, values: list[ast.AST]) -> bool:
    """Whether all values of a name are results of calls that create objects."""
    return bool(values) and all(isinstance(item, ast.Call) and _makes_objects(program, item.func) for item in values)


def _is_first_parameter(program: ParsedSource, name: ast.Name) -> bool:
    scope = program.key(name.id, name)[0]
    if not isinstance(scope.node, ast.FunctionDef) or scope.parent is None or not scope.parent.is_class:
        return False
    arguments = [*scope.node.args.posonlyargs, *scope.node.args.args][:1]
    return bool(arguments) and arguments[0].arg == name.id


def _makes_objects(program: ParsedSource, function: ast.AST) -> bool:
    if any(path.startswith("torch.") for path in program.paths(function)):
        return True
    return isinstance(function, ast.Name) and function.id in program.class_names
