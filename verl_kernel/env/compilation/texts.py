# SPDX-License-Identifier: Apache-2.0
"""The functions of a source, which a description names by name and line."""

from __future__ import annotations

import ast
import re

from verl_kernel.env.parse import parse_once

Place = tuple[str, int]
"""A function's name and the line of its `def`."""


def definitions(source: str) -> dict[Place, ast.FunctionDef]:
    """Every function, nested ones included.

    Raises:
        SyntaxError, ValueError: the source is not Python.
    """
    nodes = [node for node in ast.walk(parse_once(source)) if isinstance(node, ast.FunctionDef)]
    return {(node.name, node.lineno): node for node in nodes}


def source_lines(source: str) -> list[str]:
    """Its lines as Python counts them; `splitlines` would end some at a form feed."""
    return re.split(r"\r\n|\r|\n", source)


def function_texts(source: str) -> dict[Place, str]:
    """Their texts.

    Raises:
        SyntaxError, ValueError: the source is not Python.
    """
    lines = source_lines(source)
    found = definitions(source)
    return {place: "\n".join(lines[node.lineno - 1 : node.end_lineno]) for place, node in found.items()}
