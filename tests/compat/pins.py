# SPDX-License-Identifier: Apache-2.0
"""How names, signatures and sources of verl are looked up.

A pin that fails after an upgrade of verl says what moved, before a training run finds out. One test a pin.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import verl

VERL = Path(verl.__file__).parent


def parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def source_of(path: str, *names: str) -> ast.AST:
    """The definition `names` (outermost first) of a verl file, read without importing it."""
    node: ast.AST = ast.parse((VERL / path).read_text())
    for name in names:
        node = next(child for child in ast.walk(node) if getattr(child, "name", None) == name)
    return node


def argument_names(function: ast.AST) -> list[str]:
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    return [argument.arg for argument in function.args.args]
