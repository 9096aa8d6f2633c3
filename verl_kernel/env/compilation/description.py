# SPDX-License-Identifier: Apache-2.0
"""Descriptions that a runner makes of its launches: the functions that they run, and how these are compiled.

A description is a claim, and is validated on reading. A function is named by its line in the source, and the judge
looks it up in the text itself; a description adds the values of the names that the function uses, the types of its
arguments and the options of the launch. Values are JSON: plain values as they are, others as an object with one key
(`values`).
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from verl_kernel.env.parse import parse_once

# The functions of a source, which a description identifies by name and line.


Place = tuple[str, int]
"""A function's name and the line of its `def`."""


def definitions(source: str) -> dict[Place, ast.FunctionDef]:
    """Return every function, nested ones included.

    Raises:
        SyntaxError, ValueError: the source is not Python.
    """
    nodes = [node for node in ast.walk(parse_once(source)) if isinstance(node, ast.FunctionDef)]
    return {(node.name, node.lineno): node for node in nodes}


def source_lines(source: str) -> list[str]:
    """Split a source into lines as Python counts them; `splitlines` would also split at form feeds."""
    return re.split(r"\r\n|\r|\n", source)


def function_texts(source: str) -> dict[Place, str]:
    """Return the texts of all functions.

    Raises:
        SyntaxError, ValueError: the source is not Python.
    """
    lines = source_lines(source)
    nodes = definitions(source)
    return {position: "\n".join(lines[node.lineno - 1 : node.end_lineno]) for position, node in nodes.items()}


MOST_FUNCTIONS, MOST_LAUNCHES = 1024, 4096


@dataclass(frozen=True)
class Function:
    """A function of the source with the decorator `@triton.jit` or `@triton.constexpr_function`.

    Raises:
        ValueError: a field has another type.
    """

    name: str
    line: int
    """The line of its `def`, counted from 1."""
    is_constant: bool
    """Whether it is a `constexpr_function`."""
    marks: dict[str, str]
    """Annotations of its parameters, in Triton's spelling."""
    defaults: dict[str, Any]
    """Values of parameters that a call may leave out."""
    settings: dict[str, Any]
    """Arguments of its decorator."""
    uses: dict[str, Any]
    """Values of the names that it uses and does not bind."""

    def __post_init__(self) -> None:
        kinds = {"name": str, "line": int, "is_constant": bool, "marks": dict, "defaults": dict}
        if not all(type(getattr(self, key)) is kind for key, kind in {**kinds, "settings": dict, "uses": dict}.items()):
            raise ValueError("a described function has a field of another type than it must have")
        if not all(type(mark) is str for mark in self.marks.values()):
            raise ValueError("the marks of a described function must be strings")

    def renumbered(self, order: Mapping[int, int]) -> Function:
        """Return the same function with other numbers for functions."""
        return replace(self, uses=_each(self.uses, order), defaults=_each(self.defaults, order))


@dataclass(frozen=True)
class LaunchDescription:
    """A launch, reduced to what determines its compiled kernel.

    Raises:
        ValueError: a field has another type.
    """

    function: int
    """Number of the kernel among the functions."""
    positional: list[Any]
    named: dict[str, Any]
    """Arguments; integers are represented by their class (1, divisible by 16, other; 32 or 64 bits), tensors by dtype
    and alignment."""
    options: dict[str, Any]
    """Keyword arguments that are not parameters: warps, stages and the like."""

    def __post_init__(self) -> None:
        kinds = {"function": int, "positional": list, "named": dict, "options": dict}
        if not all(type(getattr(self, key)) is kind for key, kind in kinds.items()):
            raise ValueError("a described launch has a field of another type than it must have")

    def renumbered(self, order: Mapping[int, int]) -> LaunchDescription:
        """Return the same launch with other numbers for functions."""
        positional = _renumbered(self.positional, order)
        return LaunchDescription(order[self.function], positional, _each(self.named, order), _each(self.options, order))


@dataclass(frozen=True)
class Unit:
    """One launch and the functions that it may run, its kernel first; they refer to each other by their numbers."""

    launch: LaunchDescription
    functions: tuple[Function, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the unit as JSON values."""
        return {"launch": _fields(self.launch), "functions": list(map(_fields, self.functions))}

    @classmethod
    def from_json(cls, value: Any) -> Unit:
        """Read what `to_json` wrote."""
        return cls(LaunchDescription(**value["launch"]), tuple(Function(**item) for item in value["functions"]))

    def digest(self) -> str:
        """Return a name for the launch in a trace."""
        return _hash(self.to_json())[:16]

    def key(self, texts: Mapping[tuple[str, int], str], *versions: str) -> str:
        """Return a key for the compiler's result, which does not depend on where in a source the functions are.

        Args:
            texts: texts of the functions, by name and line.
            versions: versions of compiler and target.

        Raises:
            LookupError: a function is not in the source.
        """
        functions = [{**_fields(item), "line": texts[item.name, item.line]} for item in self.functions]
        return _hash([_fields(self.launch), functions, versions])


@dataclass(frozen=True)
class Description:
    """Every launch of a program that needs its own compiled kernel."""

    functions: Sequence[Function]
    launches: Sequence[LaunchDescription]
    tuned: Sequence[str] = ()
    """Digests of launches whose configuration an autotuner chose."""

    def to_json(self) -> dict[str, Any]:
        """Return the description as JSON values."""
        described = {"functions": list(map(_fields, self.functions)), "launches": list(map(_fields, self.launches))}
        return {**described, "tuned": list(self.tuned)}

    @classmethod
    def from_json(cls, value: Any) -> Description:
        """Read a claim.

        Raises:
            ValueError, TypeError, LookupError: the value is not a description.
        """
        functions, launches, tuned = value["functions"], value["launches"], value["tuned"]
        if not all(type(item) is list for item in (functions, launches, tuned)):
            raise ValueError("a description must hold three lists")
        if not all(type(digest) is str for digest in tuned):
            raise ValueError("a description names tuned launches by their digests")
        if len(functions) > MOST_FUNCTIONS or len(launches) > MOST_LAUNCHES:
            raise ValueError("a description holds more functions or launches than a program can have")
        return cls([Function(**item) for item in functions], [LaunchDescription(**item) for item in launches], tuned)

    def unit(self, launch: LaunchDescription) -> Unit:
        """Return one of the launches with its functions.

        Raises:
            ValueError: the launch refers to a function that is not described.
        """
        order = self._reached(launch)
        return Unit(launch.renumbered(order), tuple(self.functions[number].renumbered(order) for number in order))

    def _reached(self, launch: LaunchDescription) -> dict[int, int]:
        """Return new numbers of the functions that a launch may run, by their old ones."""
        order: dict[int, int] = {}
        waiting = [launch.function, *references([launch.positional, *launch.named.values(), *launch.options.values()])]
        while waiting:
            number = waiting.pop(0)
            if type(number) is not int or not 0 <= number < len(self.functions):
                raise ValueError("a description refers to a function that it does not hold")
            if number not in order:
                order[number] = len(order)
                function = self.functions[number]
                waiting += references([*function.uses.values(), *function.defaults.values()])
        return order


def _fields(item: Function | LaunchDescription) -> dict[str, Any]:
    """Return the fields as JSON values; `asdict` would copy them, which costs more than a launch of a small kernel."""
    return dict(vars(item))


def references(value: Any) -> Iterator[Any]:
    """Yield the numbers of functions within a value, in order."""
    if isinstance(value, dict):
        if value.keys() == {"function"}:
            yield value["function"]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from references(item)


def _renumbered(value: Any, order: Mapping[int, int]) -> Any:
    """Return a value with other numbers for its functions."""
    if isinstance(value, list):
        return [_renumbered(item, order) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"function"}:
        return {"function": order[value["function"]]}
    return {key: _renumbered(item, order) for key, item in value.items()}


def _each(values: Mapping[str, Any], order: Mapping[int, int]) -> dict[str, Any]:
    return {name: _renumbered(value, order) for name, value in values.items()}


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


# Extracts a launch from its program: what the compiler makes of it depends on nothing else.


def isolated(unit: Unit, texts: Mapping[Place, str]) -> tuple[str, Unit]:
    """Return a source with the launch's functions only, and the launch with their places in that source.

    Args:
        unit: the launch.
        texts: texts of the functions of its program, by name and line.

    Raises:
        LookupError: a function is not in the program.
    """
    lines: list[str] = []
    functions = []
    for item in unit.functions:
        text = texts[item.name, item.line]
        if text[:1] in (" ", "\t"):  # the function was nested in another one
            lines.append("if 1:")
        functions.append(replace(item, line=len(lines) + 1))
        lines += text.split("\n")
    return "\n".join([*lines, ""]), Unit(unit.launch, tuple(functions))


def place(line: int, starts: list[int]) -> tuple[int, int]:
    """Return the function that a line of such a source belongs to, and the line's distance from its first line."""
    number = max((number for number, start in enumerate(starts) if start <= line), default=0)
    return number, max(0, line - starts[number])
