# SPDX-License-Identifier: Apache-2.0
"""Groups references into families: references that a chain of near duplicates connects are one family.

Two programs are compared independently of the names, numbers and comments in them. A program becomes the words of its
syntax tree in order: kinds of nodes, and the names of what it calls. Left out are variables, constants, keywords of the
program's own functions, annotations, docstrings, imports, calls of the parent's constructor, and the functions that
draw inputs. `F.relu(x)`, `torch.relu(y)` and `y.relu()` become the same words.

Up to `EXACT` distinct normal forms every pair is compared. Beyond that, MinHash (Broder 1997) selects the pairs to
compare, by bands of equal minima: it misses 2 in 10,000 pairs of similarity 0.7, and fewer of higher similarity.
"""

from __future__ import annotations

import ast
import builtins
import zlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

THRESHOLD = 0.7
"""Smallest similarity of near duplicates, where nothing else is asked for."""
LENGTH = 4
"""Words of a shingle: a stretch of consecutive words."""
Shingles = npt.NDArray[np.uint32]
"""Hashes of a program's shingles, sorted, each once."""
_DRAWING = ("get_inputs", "get_init_inputs")
_BUILTINS = frozenset(dir(builtins))
_SILENT = (ast.expr_context, ast.arguments, ast.Expr)
EXACT = 600
"""Number of normal forms up to which every pair is compared."""
_BANDS, _ROWS = 32, 4
"""Bands of a MinHash, and minima in each; the docstring of the module says what they miss."""


def normal_form(program: str | ast.Module) -> tuple[str, ...]:
    """Return the words of a program, given as its syntax tree or as a text that parses."""
    tree = ast.parse(program) if isinstance(program, str) else program
    names = _Names(tree)
    defined = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    return tuple(_words([node for node in defined if node.name not in _DRAWING], names))


def shingles(words: Sequence[str]) -> Shingles:
    """Return the shingles of a normal form; a form shorter than `LENGTH` is one shingle."""
    starts = range(max(1, len(words) - LENGTH + 1))
    hashes = {zlib.crc32("\0".join(words[start : start + LENGTH]).encode()) for start in starts}
    return np.array(sorted(hashes), dtype=np.uint32)


def similarity(first: Shingles, second: Shingles) -> float:
    """Return the Jaccard similarity: the share of the shingles of either program that are in both."""
    both = len(np.intersect1d(first, second, assume_unique=True))
    return both / (len(first) + len(second) - both)


class _Names:
    """The names in a program: those of imports, those of its own, and the keywords of its own functions."""

    def __init__(self, tree: ast.Module) -> None:
        nodes = list(ast.walk(tree))
        self.imported = _imported(nodes)
        bound = {_bound_name(node) for node in nodes}
        self.builtins = _BUILTINS - bound
        calls = (node for node in nodes if isinstance(node, ast.Call) and node.keywords)
        self.own_keywords = {keyword for call in calls if self._is_own(call.func) for keyword in call.keywords}

    def _is_own(self, called: ast.AST) -> bool:
        """Whether the program defines a function, a kernel (`kernel[grid]`) or a method (`self.method`)."""
        while isinstance(called, ast.Subscript):
            called = called.value
        if isinstance(called, ast.Attribute):
            return _is_self(called.value)
        return isinstance(called, ast.Name) and called.id not in self.imported and called.id not in self.builtins

    def is_module(self, node: ast.AST) -> bool:
        """Whether a node is an imported module, or an attribute of one."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id in self.imported


def _words(nodes: Sequence[ast.AST], names: _Names) -> Iterator[str]:
    """Yield words depth first; with an explicit stack, as a program may be nested deeper than Python recurses."""
    stack = list(reversed(nodes))
    while stack:
        node = stack.pop()
        if _has_no_words(node):
            continue
        word = _word(node, names)
        if word:
            yield word
        stack += reversed(_child_nodes(node, names))


def _word(node: ast.AST, names: _Names) -> str:
    if isinstance(node, ast.Name):
        return names.imported.get(node.id, node.id if node.id in names.builtins else "name")
    if isinstance(node, ast.Attribute):
        return "name" if _is_self(node.value) else node.attr
    if _is_constant(node):
        return "constant"
    if isinstance(node, ast.keyword):
        return "keyword" if node in names.own_keywords else node.arg or "keywords"
    return "" if isinstance(node, _SILENT) else type(node).__name__


def _child_nodes(node: ast.AST, names: _Names) -> list[ast.AST]:
    """Return the nodes that continue a node's words."""
    if isinstance(node, ast.Attribute):
        return [] if _is_self(node.value) or names.is_module(node.value) else [node.value]
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        arguments = [] if isinstance(node, ast.ClassDef) else [node.args]
        return [*arguments, *node.decorator_list, *node.body]
    if isinstance(node, ast.arg) or _is_constant(node):
        return []
    if isinstance(node, ast.AnnAssign):
        return [node.target, *([] if node.value is None else [node.value])]
    return list(ast.iter_child_nodes(node))


def _has_no_words(node: ast.AST) -> bool:
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


def _bound_name(node: ast.AST) -> str | None:
    """Return the name that a node gives to something of the program's own; None if it gives none."""
    if isinstance(node, ast.Name):
        return node.id if isinstance(node.ctx, ast.Store) else None
    if isinstance(node, ast.arg):
        return node.arg
    return node.name if isinstance(node, ast.FunctionDef | ast.ClassDef) else None


def _imported(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Map each name that an import binds to the last part of the imported name."""
    modules: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in node.names:
                bound = name.asname or (name.name if isinstance(node, ast.ImportFrom) else name.name.partition(".")[0])
                modules[bound] = name.name.rpartition(".")[2] if name.asname else bound
    return modules


class Families:
    """Families of references, and how similar any two of them are.

    Args:
        references: source texts that parse.
        threshold: smallest similarity of near duplicates, in (0, 1].
    """

    def __init__(self, references: Sequence[str], threshold: float) -> None:
        forms: dict[tuple[str, ...], int] = {}
        self._form_of = [forms.setdefault(normal_form(text), len(forms)) for text in references]
        self._shingles = [shingles(form) for form in forms]
        self._parents = list(range(len(forms)))
        for first, second in pairs(self._shingles):
            if self._root(first) != self._root(second) and self.alike(first, second) >= threshold:
                self._parents[self._root(second)] = self._root(first)

    @property
    def members(self) -> list[list[int]]:
        """Return the indices of the references of each family, ordered by their first ones."""
        families: defaultdict[int, list[int]] = defaultdict(list)
        for index, form in enumerate(self._form_of):
            families[self._root(form)].append(index)
        return list(families.values())

    @property
    def forms(self) -> int:
        """Return the number of distinct normal forms."""
        return len(self._shingles)

    def alike(self, first: int, second: int) -> float:
        """Return the similarity of two normal forms."""
        return similarity(self._shingles[first], self._shingles[second])

    def closest(self, indices: Sequence[int], other_indices: Sequence[int]) -> float:
        """Return the similarity of the most similar pair between two sides, among the pairs that are compared."""
        sides = {self._form_of[index] for index in indices}, {self._form_of[index] for index in other_indices}
        across = (pair for pair in pairs(self._shingles) if (pair[0] in sides[0]) != (pair[1] in sides[0]))
        return max((self.alike(*pair) for pair in across if {*pair} <= sides[0] | sides[1]), default=0.0)

    def _root(self, form: int) -> int:
        while self._parents[form] != form:  # halves the path, so that later searches are short
            self._parents[form] = form = self._parents[self._parents[form]]
        return form


def pairs(programs: Sequence[Shingles]) -> Iterator[tuple[int, int]]:
    """Yield pairs of programs that may be near duplicates: all pairs, or those that share a band."""
    if len(programs) <= EXACT:
        yield from combinations(range(len(programs)), 2)
        return
    yielded: set[tuple[int, int]] = set()
    for bucket in _buckets(programs):
        for pair in combinations(bucket, 2):
            if pair not in yielded:
                yielded.add(pair)
                yield pair


def _buckets(programs: Sequence[Shingles]) -> Iterator[list[int]]:
    minima = _minima(programs)
    for band in range(_BANDS):
        buckets: defaultdict[Hashable, list[int]] = defaultdict(list)
        for index, row in enumerate(minima[:, band * _ROWS : (band + 1) * _ROWS]):
            buckets[row.tobytes()].append(index)
        yield from (bucket for bucket in buckets.values() if len(bucket) > 1)


def _minima(programs: Sequence[Shingles]) -> npt.NDArray[np.uint64]:
    """Return each program's smallest shingle hash under each of many hash functions (multiply and shift)."""
    random = np.random.default_rng(0)
    # The factors are odd, and only the upper half of a product is used: its lower bits depend on too few of the hash.
    factors = random.integers(1, 2**63, _BANDS * _ROWS, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    addends = random.integers(0, 2**63, _BANDS * _ROWS, dtype=np.uint64)
    hashed = ((np.multiply.outer(program.astype(np.uint64), factors) + addends).min(axis=0) for program in programs)
    return np.array([row >> np.uint64(32) for row in hashed])
