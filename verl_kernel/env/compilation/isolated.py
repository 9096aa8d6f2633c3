# SPDX-License-Identifier: Apache-2.0
"""A launch apart from the program that it stands in: what the compiler makes of it depends on nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from verl_kernel.env.compilation.description import Unit
from verl_kernel.env.compilation.texts import Place


def isolated(unit: Unit, texts: Mapping[Place, str]) -> tuple[str, Unit]:
    """A source of the launch's functions alone, and the launch with their places in that.

    Args:
        unit: the launch.
        texts: of the functions of its program, by name and line.

    Raises:
        LookupError: a function is not in the program.
    """
    lines: list[str] = []
    functions = []
    for item in unit.functions:
        text = texts[item.name, item.line]
        if text[:1] in (" ", "\t"):  # it stood within another one
            lines.append("if 1:")
        functions.append(replace(item, line=len(lines) + 1))
        lines += text.split("\n")
    return "\n".join([*lines, ""]), Unit(unit.launch, tuple(functions))


def place(line: int, starts: list[int]) -> tuple[int, int]:
    """The number of the function that a line of such a source belongs to, and how far it is from its first line."""
    number = max((number for number, start in enumerate(starts) if start <= line), default=0)
    return number, max(0, line - starts[number])
