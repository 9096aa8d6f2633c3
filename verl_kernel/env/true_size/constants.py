# SPDX-License-Identifier: Apache-2.0
"""The sizes of a task: whole numbers at module level, in `get_inputs` and in `get_init_inputs`.

A task in KernelBench's form says nowhere which of its numbers are sizes. These are the places where it writes them;
what the class itself holds (kernel sizes, paddings, defaults) is left alone.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import cast

_FUNCTIONS = ("get_inputs", "get_init_inputs")
_LARGEST = 1 << 62


def sizes_of(source: str) -> tuple[int, ...]:
    """The distinct whole numbers of a task, ascending; those up to 4 are never sizes (axes, ranks)."""
    finder = _Sizes({})
    finder.read(ast.parse(source))
    return tuple(sorted(finder.found))


def resized(source: str, sizes: Mapping[int, int]) -> str:
    """The task with other sizes.

    Args:
        source: of the task.
        sizes: the new number for each one that changes.
    """
    tree = ast.parse(source)
    _Sizes(sizes).read(tree)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


class _Sizes(ast.NodeTransformer):
    """Finds the numbers and puts others in their place."""

    def __init__(self, sizes: Mapping[int, int]) -> None:
        self._sizes = sizes
        self.found: set[int] = set()

    def read(self, tree: ast.Module) -> None:
        """Visit the statements that may hold sizes."""
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                node.value = cast(ast.expr, self.visit(node.value))
            elif isinstance(node, ast.FunctionDef) and node.name in _FUNCTIONS:
                node.body = [cast(ast.stmt, self.visit(part)) for part in node.body]

    def visit(self, node: ast.AST) -> ast.AST:
        """Replace the largest expressions that are numbers alone, such as `16 * 1024`."""
        value = _number(node) if isinstance(node, ast.expr) else None
        if value is None:
            return self.generic_visit(node)
        if value <= 4:
            return node
        self.found.add(value)
        return ast.copy_location(ast.Constant(self._sizes[value]), node) if value in self._sizes else node


def _number(node: ast.expr) -> int | None:
    """The value of an expression of whole numbers, or None."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if not isinstance(node, ast.BinOp):
        return None
    left, right = _number(node.left), _number(node.right)
    if left is None or right is None or max(abs(left), abs(right)) > _LARGEST:
        return None
    return _value(node.op, left, right)


def _value(operator: ast.operator, left: int, right: int) -> int | None:
    if isinstance(operator, ast.Mult):
        return left * right
    if isinstance(operator, ast.Add):
        return left + right
    if isinstance(operator, ast.Sub):
        return left - right
    if isinstance(operator, ast.FloorDiv) and right:
        return left // right
    if isinstance(operator, ast.LShift | ast.Pow) and 0 <= right <= 62 and abs(left) <= 16:
        return left << right if isinstance(operator, ast.LShift) else left**right
    return None
