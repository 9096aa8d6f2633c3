# SPDX-License-Identifier: Apache-2.0
"""The rule on assignments: what was imported stays as it is, and state is kept on `self`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from verl_kernel.env.static_check.allowlist import SETTINGS
from verl_kernel.env.static_check.names import ParsedSource
from verl_kernel.env.static_check.syntax import root
from verl_kernel.env.static_check.violation import Violation, at


def assignments(program: ParsedSource) -> Iterator[Violation]:
    """Nothing that was imported is changed, and functions change no module-level name."""
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
    """Whether it is an attribute of self, of ctx, or of what a call has made, or `.data`, `.weight` and the like."""
    if node.value is not base and node.attr not in ("data", "requires_grad", "weight", "bias", "block_shape"):
        return False
    if _is_first_parameter(program, base) or (node.attr == "block_shape" and _is_item(node.value, base)):
        return True
    return program.once("made", program.key(base.id, base), lambda: _is_made(program, program.values(base.id, base)))


def _is_item(node: ast.AST, base: ast.Name) -> bool:
    """Whether it is `base[...]`: a hook before a launch sets the block of a descriptor among its arguments."""
    return isinstance(node, ast.Subscript) and node.value is base


def _is_made(program: ParsedSource, values: list[ast.AST]) -> bool:
    """Whether a name stands for what calls have made, and nothing else."""
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
