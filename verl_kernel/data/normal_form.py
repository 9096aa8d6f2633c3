# SPDX-License-Identifier: Apache-2.0
"""Compares two references independently of the names, numbers and comments in them.

A reference becomes the words of its syntax tree in order: kinds of nodes, and the names of what it calls. Left out are
variables, constants, annotations, docstrings, imports, calls of the parent's constructor, and the functions that draw
inputs. `F.relu(x)`, `torch.relu(y)` and `y.relu()` become the same words.
"""

from __future__ import annotations

import ast
import builtins
import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

LENGTH = 4
"""Words of a shingle: a stretch of consecutive words."""
Shingles = npt.NDArray[np.uint32]
"""Hashes of a program's shingles, sorted, each once."""
_DRAWING = ("get_inputs", "get_init_inputs")
_BUILTINS = frozenset(dir(builtins))
_SILENT = (ast.expr_context, ast.arguments, ast.Expr)


def normal_form(reference: str) -> tuple[str, ...]:
    """Return the words of a reference program that parses."""
    tree = ast.parse(reference)
    imported = _imported(tree)
    defined = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    return tuple(_words([node for node in defined if node.name not in _DRAWING], imported))


def shingles(words: Sequence[str]) -> Shingles:
    """Return the shingles of a normal form; a form shorter than `LENGTH` is one shingle."""
    starts = range(max(1, len(words) - LENGTH + 1))
    hashes = {zlib.crc32("\0".join(words[start : start + LENGTH]).encode()) for start in starts}
    return np.array(sorted(hashes), dtype=np.uint32)


def similarity(one: Shingles, other: Shingles) -> float:
    """Return the Jaccard similarity: the share of the shingles of either program that are in both."""
    both = len(np.intersect1d(one, other, assume_unique=True))
    return both / (len(one) + len(other) - both)


def _words(nodes: Sequence[ast.AST], imported: dict[str, str]) -> Iterator[str]:
    """Yield words depth first; with an explicit stack, as a program may be nested deeper than Python recurses."""
    stack = list(reversed(nodes))
    while stack:
        node = stack.pop()
        if _is_idle(node):
            continue
        word = _word(node, imported)
        if word:
            yield word
        stack += reversed(_inner(node, imported))


def _word(node: ast.AST, imported: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return imported.get(node.id, node.id if node.id in _BUILTINS else "name")
    if isinstance(node, ast.Attribute):
        return "name" if _is_self(node.value) else node.attr
    if _is_constant(node):
        return "constant"
    if isinstance(node, ast.keyword):
        return node.arg or "keywords"
    return "" if isinstance(node, _SILENT) else type(node).__name__


def _inner(node: ast.AST, imported: dict[str, str]) -> list[ast.AST]:
    """Return the nodes that continue a node's words."""
    if isinstance(node, ast.Attribute):
        return [] if _is_self(node.value) or _is_module(node.value, imported) else [node.value]
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        arguments = [] if isinstance(node, ast.ClassDef) else [node.args]
        return [*arguments, *node.decorator_list, *node.body]
    if isinstance(node, ast.arg) or _is_constant(node):
        return []
    if isinstance(node, ast.AnnAssign):
        return [node.target, *([] if node.value is None else [node.value])]
    return list(ast.iter_child_nodes(node))


def _is_idle(node: ast.AST) -> bool:
    """Whether a node is a docstring, `pass` or `super().__init__()`."""
    if not isinstance(node, ast.Expr):
        return isinstance(node, ast.Pass)
    called = node.value.func if isinstance(node.value, ast.Call) else None
    return isinstance(node.value, ast.Constant) or (isinstance(called, ast.Attribute) and called.attr == "__init__")


def _is_constant(node: ast.AST) -> bool:
    """Whether a node is a constant, with or without a sign."""
    return isinstance(node.operand if isinstance(node, ast.UnaryOp) else node, ast.Constant)


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _is_module(node: ast.AST, imported: dict[str, str]) -> bool:
    """Whether a node is an imported module, or an attribute of one."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in imported


def _imported(tree: ast.Module) -> dict[str, str]:
    """Map each name that an import binds to the last part of the imported name."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in node.names:
                bound = name.asname or (name.name if isinstance(node, ast.ImportFrom) else name.name.partition(".")[0])
                found[bound] = name.name.rpartition(".")[2] if name.asname else bound
    return found
