# SPDX-License-Identifier: Apache-2.0
"""What the compiler did with each name of a text, and random texts full of scopes. Standard library only."""

from __future__ import annotations

import ast
import sys
import types
from collections import defaultdict
from collections.abc import Iterator
from random import Random

_NAMES = ["a", "b", "c", "getattr", "type", "super", "__d"]
_LINE = "    "


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and all within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def places(code: types.CodeType) -> dict[str, set[str]]:
    """Where a code object keeps each of its names: `local`, `free` or `named` (global, or found when it runs)."""
    found: dict[str, set[str]] = defaultdict(set)
    for kind, names in (("local", (*code.co_varnames, *code.co_cellvars)), ("free", code.co_freevars)):
        for name in names:
            found[name].add(kind)
    for name in code.co_names:
        found[name].add("named")
    return found


def by_place(tree: ast.Module) -> dict[tuple[str, int], list[types.CodeType]]:
    """The code objects of a tree by name and first line."""
    found = defaultdict(list)
    for code in codes(compile(tree, "text", "exec", dont_inherit=True)):
        found[code.co_name, code.co_firstlineno].append(code)
    return found


def opcodes(tree: ast.Module) -> dict[tuple[object, ...], set[str]]:
    """The instructions that handle a name at a place of the text (Python 3.11 and later)."""
    import dis

    found = defaultdict(set)
    for code in codes(compile(tree, "text", "exec", dont_inherit=True)):
        for instruction in dis.get_instructions(code):
            place = instruction.positions
            if place is not None and isinstance(instruction.argval, str):
                key = (place.lineno, place.end_lineno, place.col_offset, place.end_col_offset, instruction.argval)
                found[key].add(instruction.opname)
    return found


HAS_POSITIONS = sys.version_info >= (3, 11)


class Text:
    """A random text of nested functions, classes, lambdas and comprehensions over a few names."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._lines: list[str] = []

    def written(self) -> str:
        """The text; each scope with a line of its own."""
        for _ in range(self._random.randint(1, 5)):
            self._statement(0, in_function=False)
        return "\n".join(self._lines) + "\n"

    def _name(self) -> str:
        return self._random.choice(_NAMES)

    def _write(self, depth: int, text: str) -> None:
        self._lines.append(_LINE * depth + text)

    def _value(self, depth: int = 0) -> str:
        kind = self._random.randint(0, 9 if depth < 3 else 3)
        name, other = self._name(), self._name()
        if kind <= 3:
            return name
        if kind == 4:
            return f"(lambda {name}=\n{self._value(depth + 1)}, *{other}_:\n{self._value(depth + 1)})"
        if kind == 5:
            return f"(\n{self._value(depth + 1)}, f'{{{name}}}', {other})"
        pair = self._random.choice(["{%s}", "[%s]", "(%s)", "{%s: 1}"])
        first, last = pair.split("%s")
        test = self._random.choice([f"if {self._value(depth + 1)}", f"for {other} in {self._value(depth + 1)}", ""])
        return f"{first}\n{self._value(depth + 1)}{last[:-1]} for {name} in {self._value(depth + 1)} {test}{last[-1]}"

    def _statement(self, depth: int, in_function: bool) -> None:
        kinds = [self._assign, self._use]
        if depth < 4:
            kinds += [self._for, self._if, self._def, self._class, self._def]
        self._random.choice(kinds)(depth, in_function)

    def _body(self, depth: int, in_function: bool) -> None:
        for _ in range(self._random.randint(1, 4)):
            self._statement(depth, in_function)

    def _assign(self, depth: int, in_function: bool) -> None:
        form = self._random.choice(["{0} = {1}", "{0}: {2} = {1}", "({0} := {1})", "{0}, *{2} = {1}", "{0}: {2}"])
        self._write(depth, form.format(self._name(), self._value(), self._name()))

    def _use(self, depth: int, in_function: bool) -> None:
        self._write(depth, self._value())

    def _for(self, depth: int, in_function: bool) -> None:
        self._write(depth, f"for {self._name()} in {self._value()}:")
        self._body(depth + 1, in_function)

    def _if(self, depth: int, in_function: bool) -> None:
        self._write(depth, f"if {self._value()}:")
        self._body(depth + 1, in_function)

    def _def(self, depth: int, in_function: bool) -> None:
        if self._random.random() < 0.3:
            self._write(depth, f"@({self._value()})")
        name, argument = self._name(), self._name()
        self._write(depth, f"def {name}({argument}: {self._name()} = {self._value()}) -> {self._name()}:")
        if self._random.random() < 0.15:
            kept = self._random.choice([item for item in _NAMES if item != argument])
            self._write(depth + 1, f"global {kept}")
        self._body(depth + 1, True)

    def _class(self, depth: int, in_function: bool) -> None:
        self._write(depth, f"class {self._name()}({self._value()}):")
        self._body(depth + 1, False)
