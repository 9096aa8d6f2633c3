# SPDX-License-Identifier: Apache-2.0
"""A reason to refuse a source text, and what a rule is."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from verl_kernel.env.static_check.names import ParsedSource


@dataclass(frozen=True)
class Violation:
    """One reason to refuse a source text."""

    rule: str
    line: int
    reason: str


Rule = Callable[[ParsedSource], Iterator[Violation]]


def at(node: ast.AST, rule: str, reason: str) -> Violation:
    """A violation on the line of `node`."""
    return Violation(rule, getattr(node, "lineno", 1), reason)
