# SPDX-License-Identifier: Apache-2.0
"""Text of named objects of an unpacked package, which is never imported."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KEPT = ("triton", "tl", "dataclass", "functools", "torch")
"""Decorators of these are taken along; a package's own (`libentry`, `dispatch`) are not."""
ALIASES = {"tle.": "tl."}
"""A package's names for parts of Triton, and ours."""


class NotThere(Exception):
    """A package's file has no object of this name at module level."""


@dataclass(frozen=True)
class Part:
    """Objects of one file: their names, separated by spaces, and what replaces the decorators of the one named last."""

    path: str
    names: str
    decorator: str | None = None

    def text(self, folder: Path) -> str:
        """The objects' text, in the order of the file."""
        text = (folder / self.path).read_text()
        for theirs, ours in ALIASES.items() if self.path.startswith("flag_gems/") else ():
            text = text.replace(theirs, ours)
        objects = {name: node for node in at_module_level(ast.parse(text)) for name in bound(node)}
        if missing := [name for name in self.names.split() if name not in objects]:
            raise NotThere(f"{self.path} has no {', '.join(missing)} at module level: another version of the package?")
        nodes = sorted({objects[name] for name in self.names.split()}, key=lambda node: node.lineno)
        return "\n\n".join(self._object(text, node) for node in nodes) + "\n"

    def _object(self, text: str, node: ast.stmt) -> str:
        given = self.decorator if self.names.split()[-1] in bound(node) else None
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


def heuristics(**functions: str) -> str:
    """A decorator for the package's own functions, which its runtime finds by name."""
    return f"@triton.heuristics({{{', '.join(f'{key!r}: {value}' for key, value in functions.items())}}})"


def tuned(key: str, names: str, *configs: tuple[Any, ...], **more: Any) -> str:
    """A decorator with configurations of ours, a row of values each."""
    rows = [dict(zip(names.split(), values, strict=True)) for values in configs]
    made = ", ".join(f"triton.Config({_config(row)})" for row in rows)
    others = "".join(f", {name}={value!r}" for name, value in more.items())
    return f"@triton.autotune(configs=[{made}], key={key.split()}{others})"


def _config(row: dict[str, Any]) -> str:
    own = {name: value for name, value in row.items() if not name.startswith("num_")}
    return ", ".join([repr(own), *(f"{name}={value}" for name, value in row.items() if name.startswith("num_"))])
