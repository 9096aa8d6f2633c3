# SPDX-License-Identifier: Apache-2.0
"""The static gate: refuses source that no honest kernel needs, before anything runs.

It reads the syntax tree, never the text, so a docstring may mention `eval`. Each rule is a function from a program to
violations; mode `coverage` lets torch compute in `forward` (the coverage reward is then lower), `strict` does not. The
gate is the first layer, not the only one: code that it misses runs in a jail and is judged by its output.
"""

from __future__ import annotations

from verl_kernel.env.parse import parse_once
from verl_kernel.env.static_check.names import ParsedSource, Rule, Violation
from verl_kernel.env.static_check.rules import attribute_names, builtins, classes, host, kernels, numbers
from verl_kernel.env.static_check.rules.strict import torch_compute

RULES: tuple[Rule, ...] = (
    builtins.imports,
    builtins.packages,
    builtins.rebound,
    builtins.builtins,
    builtins.unbound,
    builtins.calls,
    builtins.names,
    kernels.statements,
    classes.assignments,
    kernels.decorators,
    kernels.wrapped_kernels,
    kernels.wrappers,
    kernels.entry_class,
    classes.classes,
    classes.self_internals,
    host.attributes,
    attribute_names.named_attributes,
    host.modules,
    host.environment,
    host.factories,
    host.containers,
    host.default_stores,
    host.caches,
    builtins.loggers,
    numbers.numpy_calls,
    kernels.kernels,
    kernels.launches,
)
STRICT_RULES: tuple[Rule, ...] = (*RULES, torch_compute)


def check(source: str, mode: str = "coverage", entry: str = "ModelNew") -> list[Violation]:
    """Return the violations of a candidate's source, in the order of its lines.

    Args:
        source: any text.
        mode: `strict`, `coverage` or `off` (nothing is checked).
        entry: class that the candidate must define.

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
        violations = {(item.rule, item.line): item for rule in rules for item in rule(program)}
        return sorted(violations.values(), key=lambda item: item.line)
    except SyntaxError as exc:
        return [Violation("syntax", exc.lineno or 1, f"not valid Python: {exc.msg}")]
    except (ValueError, RecursionError, MemoryError, OverflowError) as exc:
        return [Violation("syntax", 1, f"not readable as Python: {exc or type(exc).__name__}")]


__all__ = ["RULES", "STRICT_RULES", "Violation", "check"]
