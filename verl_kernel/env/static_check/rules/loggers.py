# SPDX-License-Identifier: Apache-2.0
"""The rule on logging: a logger is asked to say something, and for nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from verl_kernel.env.static_check.names import ParsedSource
from verl_kernel.env.static_check.violation import Violation, at

_MAKER = "logging.getLogger"
_SAYS = frozenset("debug info warning error critical isEnabledFor".split())
_REASON = "a logger may be asked for debug, info, warning or error only"


def loggers(program: ParsedSource) -> Iterator[Violation]:
    """`logging.getLogger(...)` is called where it is named, and what it returns only says something.

    Everything else of a logger leads on: to its handlers, to other loggers and their factories.
    """
    for node in program.every(ast.Name, ast.Attribute) if program.uses("logging.") else []:
        if _MAKER in program.paths(node) and isinstance(node.ctx, ast.Load):
            call = program.parents[id(node)]
            is_called = isinstance(call, ast.Call) and call.func is node
            if not is_called or not _only_says(program, call):
                yield at(node, "logging", _REASON)


def _only_says(program: ParsedSource, made: ast.AST) -> bool:
    """Whether an expression that is a logger is asked at once, or bound to a name of which all uses are."""
    use = program.parents[id(made)]
    if not isinstance(use, ast.Assign):
        return _says(program, made)
    names = [target for target in use.targets if isinstance(target, ast.Name)]
    return len(names) == len(use.targets) and all(_is_only_asked(program, name) for name in names)


def _is_only_asked(program: ParsedSource, name: ast.Name) -> bool:
    uses = program.occurrences(name)
    return program.once(
        "logger", id(uses), lambda: all(_says(program, use) for use in uses if isinstance(use.ctx, ast.Load))
    )


def _says(program: ParsedSource, logger: ast.AST) -> bool:
    use = program.parents[id(logger)]
    call = program.parents.get(id(use))
    is_called = isinstance(call, ast.Call) and call.func is use
    return isinstance(use, ast.Attribute) and use.attr in _SAYS and is_called
