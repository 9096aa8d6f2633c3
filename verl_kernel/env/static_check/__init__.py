# SPDX-License-Identifier: Apache-2.0
"""The static gate: refuses source that no honest kernel needs, before anything runs.

It reads the syntax tree, never the text, so a docstring that mentions `eval` is no reason. Each rule is a function
from a program to violations; `coverage` lets torch compute in `forward` (coverage then pays less), `strict` does not.
The gate is the first layer, not the only one: what it misses runs in a jail and is judged by its output.
"""

from __future__ import annotations

from verl_kernel.env.parse import parse_once
from verl_kernel.env.static_check.names import ParsedSource
from verl_kernel.env.static_check.rules import assignments as static_assignments
from verl_kernel.env.static_check.rules import builtins as static_builtins
from verl_kernel.env.static_check.rules import classes as static_classes
from verl_kernel.env.static_check.rules import host as static_host
from verl_kernel.env.static_check.rules import imports as static_imports
from verl_kernel.env.static_check.rules import kernels as static_kernels
from verl_kernel.env.static_check.rules import language as static_language
from verl_kernel.env.static_check.rules import loggers as static_loggers
from verl_kernel.env.static_check.rules import numbers as static_numbers
from verl_kernel.env.static_check.rules.strict import torch_compute
from verl_kernel.env.static_check.violation import Rule, Violation

RULES: tuple[Rule, ...] = (
    static_imports.imports,
    static_imports.rebound,
    static_builtins.builtins,
    static_builtins.unbound,
    static_builtins.calls,
    static_builtins.names,
    static_language.statements,
    static_assignments.assignments,
    static_language.decorators,
    static_language.entry_class,
    static_classes.classes,
    static_classes.self_internals,
    static_host.attributes,
    static_host.read_names,
    static_host.modules,
    static_host.environment,
    static_host.factories,
    static_host.containers,
    static_host.default_stores,
    static_host.caches,
    static_loggers.loggers,
    static_numbers.numpy_calls,
    static_kernels.kernels,
    static_kernels.launches,
)
STRICT_RULES: tuple[Rule, ...] = (*RULES, torch_compute)


def check(source: str, mode: str = "coverage", entry: str = "ModelNew") -> list[Violation]:
    """Violations of a candidate's source, in the order of its lines.

    Args:
        source: any text at all.
        mode: `strict`, `coverage` or `off` (nothing is checked).
        entry: class the candidate must define.

    Returns:
        An empty list for source that may run.

    Raises:
        ValueError: an unknown mode.
    """
    if mode not in ("strict", "coverage", "off"):
        raise ValueError(f"static check mode {mode!r} is unknown: use strict, coverage or off")
    if mode == "off":
        return []
    try:
        program = ParsedSource(source, parse_once(source), entry)
        rules = STRICT_RULES if mode == "strict" else RULES
        found = {(item.rule, item.line): item for rule in rules for item in rule(program)}
        return sorted(found.values(), key=lambda item: item.line)
    except SyntaxError as exc:
        return [Violation("syntax", exc.lineno or 1, f"not valid Python: {exc.msg}")]
    except (ValueError, RecursionError, MemoryError, OverflowError) as exc:
        return [Violation("syntax", 1, f"not readable as Python: {exc or type(exc).__name__}")]


__all__ = ["RULES", "STRICT_RULES", "Violation", "check"]
