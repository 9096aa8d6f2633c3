# SPDX-License-Identifier: Apache-2.0
"""Text of named objects of an unpacked package, which is never imported."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path

KEPT = ("triton", "tl", "dataclass", "functools", "torch")
"""Decorators of these are taken along; a package's own (`libentry`, `dispatch`) are not."""


class NotThere(Exception):
    """A package's file has no object of this name at module level."""


@dataclass(frozen=True)
class Part:
    """Objects of one file: their names, separated by spaces, and the decorators that replace those of some."""

    path: str
    names: str
    decorators: dict[str, str] = field(default_factory=dict)

    def text(self, folder: Path) -> str:
        """The objects' text, in the order of the file."""
        text = (folder / self.path).read_text()
        objects = {name: node for node in at_module_level(ast.parse(text)) for name in bound(node)}
        if missing := [name for name in self.names.split() if name not in objects]:
            raise NotThere(f"{self.path} has no {', '.join(missing)} at module level: another version of the package?")
        nodes = sorted({objects[name] for name in self.names.split()}, key=lambda node: node.lineno)
        return "\n\n".join(self._object(text, node) for node in nodes) + "\n"

    def _object(self, text: str, node: ast.stmt) -> str:
        given = self.decorators.get(getattr(node, "name", ""))
        own = [f"@{ast.get_source_segment(text, item)}" for item in decorators(node)]
        lines = own if given is None else [given, *[line for line in own if line.startswith("@triton.jit")]]
        return "\n".join([*lines, ast.get_source_segment(text, node) or ""])


def at_module_level(node: ast.Module | ast.If) -> list[ast.stmt]:
    """Statements of a module, with those under an `if`, of which the last one that binds a name counts."""
    inner = [item for item in [*node.body, *getattr(node, "orelse", [])]]
    return [found for item in inner for found in (at_module_level(item) if isinstance(item, ast.If) else [item])]


def bound(node: ast.stmt) -> list[str]:
    """The names that a statement at module level binds."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def decorators(node: ast.stmt) -> list[ast.expr]:
    """The decorators that are taken along."""
    return [item for item in getattr(node, "decorator_list", []) if root(item) in KEPT]


def root(node: ast.expr) -> str:
    """The first name of a dotted path or of a call."""
    while isinstance(node, ast.Call | ast.Attribute):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
