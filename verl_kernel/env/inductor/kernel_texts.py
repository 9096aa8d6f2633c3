# SPDX-License-Identifier: Apache-2.0
"""Texts of Inductor's kernels and of the helpers that they call, so that a program can define all of them itself."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.standard import _log2
from triton.runtime.jit import JITFunction

HEADER = """\
import triton
import triton.language as tl
from triton.language import math as tl_math
from triton.language.extra import libdevice
from triton.language.standard import _log2
"""
"""Imports of a program that has such texts."""
_KNOWN: dict[str, Any] = {"tl": tl, "triton": triton, "tl_math": tl.math, "libdevice": libdevice, "_log2": _log2}
"""Values of the names that `HEADER` binds."""


class NotWritten(Exception):
    """A kernel uses something that has no text; the message says what."""


class KernelTexts:
    """Collects kernels and helpers, each once, under a name of its own."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        """Definitions, each before its first use."""
        self._names: dict[int, str] = {}

    def name(self, function: JITFunction, configs: Sequence[str] = ()) -> str:
        """Return the name of a function, whose text is added at the first request.

        Args:
            function: the function.
            configs: of a kernel, the configurations that are tried, as expressions.

        Raises:
            NotWritten: it uses something that has no text.
        """
        if id(function) not in self._names:
            own = function.fn.__name__
            used_names = set(self._names.values())
            self._names[id(function)] = name = own if own not in used_names else f"{own}_{len(used_names)}"
            tuned = f"@triton.autotune([{', '.join(configs)}], key=[])\n" if configs else ""
            self.texts.append(tuned + self._written(function, name))
        return self._names[id(function)]

    def _written(self, function: JITFunction, name: str) -> str:
        tree = ast.parse(textwrap.dedent(function.src))
        (definition,) = tree.body
        assert isinstance(definition, ast.FunctionDef)
        definition.name, definition.decorator_list = name, []
        named = _Names(function.fn.__globals__, _bound(definition), self).visit(tree)
        return f"@triton.jit\n{ast.unparse(ast.fix_missing_locations(named))}\n"


class _Names(ast.NodeTransformer):
    """Gives the names in a function their meaning in the program."""

    def __init__(self, scope: dict[str, Any], bound: set[str], texts: KernelTexts) -> None:
        self._scope, self._bound, self._texts = scope, bound, texts

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Replace a helper in a module of torch by its name in the program."""
        if isinstance(node.value, ast.Name) and isinstance(module := self._value(node.value.id), ModuleType):
            attribute = getattr(module, node.attr, None)
            if module.__name__.partition(".")[0] == "torch":
                return self._expression(f"{node.value.id}.{node.attr}", attribute)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Replace a function or a constant of the module by its name, or its value, in the program."""
        value = self._value(node.id)
        if value is None or (any(value is module for module in _KNOWN.values()) and node.id in _KNOWN):
            return node
        return self._expression(node.id, value)

    def _value(self, name: str) -> Any:
        return None if name in self._bound else self._scope.get(name)

    def _expression(self, name: str, value: Any) -> ast.AST:
        for module_name, each in _KNOWN.items():
            if each is value:
                return ast.Name(module_name, ast.Load())
        if isinstance(value, JITFunction):
            return ast.Name(self._texts.name(value), ast.Load())
        if isinstance(value, tl.constexpr) and isinstance(value.value, int | float):
            return ast.Constant(value.value)
        raise NotWritten(f"a kernel of Inductor's uses {name}")


def _bound(definition: ast.FunctionDef) -> set[str]:
    """Return the names that a function binds."""
    inside = [node for node in ast.walk(definition) if isinstance(node, ast.Name)]
    stored = {node.id for node in inside if not isinstance(node.ctx, ast.Load)}
    return stored | {item.arg for item in definition.args.args}
