# SPDX-License-Identifier: Apache-2.0
"""Rules on imports: which modules are open, and that an imported name keeps its meaning."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from verl_kernel.env.static_check.allowlist import OPEN_MODULES, refusal
from verl_kernel.env.static_check.names import ParsedSource
from verl_kernel.env.static_check.syntax import bound_names, is_import, is_special, sets_constant
from verl_kernel.env.static_check.violation import Violation, at


def imports(program: ParsedSource) -> Iterator[Violation]:
    """Only open modules are imported, by name."""
    for node in program.nodes:
        if isinstance(node, ast.Import):
            for item in node.names:
                if item.name not in OPEN_MODULES:
                    yield at(node, "import", f"import of {item.name} is not allowed")
        elif isinstance(node, ast.ImportFrom):
            yield from _imports_from(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            for item in node.names:
                if is_special(item.asname or ""):
                    yield at(node, "import", f"import as {item.asname} is not allowed")


def _imports_from(node: ast.ImportFrom) -> Iterator[Violation]:
    module = node.module or ""
    if node.level or not _leads_to_open(module):
        yield at(node, "import", f"import from {'.' * node.level}{module} is not allowed")
        return
    for item in node.names:
        path = f"{module}.{item.name}"
        closed = module not in OPEN_MODULES and path not in OPEN_MODULES
        if item.name == "*" or closed or (reason := refusal(path)):
            yield at(node, "import", f"import of {path} is not allowed" if item.name == "*" or closed else reason)


def _leads_to_open(module: str) -> bool:
    return any(f"{known}.".startswith(f"{module}.") for known in OPEN_MODULES) if module else False


def rebound(program: ParsedSource) -> Iterator[Violation]:
    """An imported name stands for what was imported, so that the other rules read it right."""
    imported = {program.key(name, node) for node in program.nodes if is_import(node) for name in bound_names(node)}
    for node in program.nodes:
        if is_import(node) or sets_constant(program.parents.get(id(node), node)):
            continue
        for name in bound_names(node):
            if program.key(name, node) in imported:
                yield at(node, "import", f"{name} is imported: give the other thing another name")
