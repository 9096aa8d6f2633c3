# SPDX-License-Identifier: Apache-2.0
"""Packages that a candidate tries to import and can do without: none of them is there.

A guard such as `try: import flash_attn` with `except ImportError` is common, and its program must behave the same
whatever is installed. So an import of a package that no candidate may use fails in a `try`, by a name that no package
can have.
"""

from __future__ import annotations

import ast
import sys

from verl_kernel.env.static_check.allowlist import OPEN_MODULES

_KNOWN = sys.stdlib_module_names | {module.partition(".")[0] for module in OPEN_MODULES}


def optional_imports(tree: ast.Module) -> set[ast.Import | ast.ImportFrom]:
    """Return the imports that stand in a `try` and name foreign packages only, nothing of which is bound by `*`."""
    bodies = [statement for node in ast.walk(tree) if isinstance(node, ast.Try) for statement in node.body]
    return {item for item in bodies if isinstance(item, ast.Import | ast.ImportFrom) and _is_foreign(item)}


def remove_optional_packages(tree: ast.Module) -> None:
    """Let these imports fail; names that they bind stay what they are to the compiler."""
    for node in optional_imports(tree):
        if isinstance(node, ast.ImportFrom):
            node.module = _absent(node.module or "")
        else:
            for item in node.names:
                item.asname, item.name = item.asname or item.name.partition(".")[0], _absent(item.name)


def _is_foreign(node: ast.Import | ast.ImportFrom) -> bool:
    modules = [item.name for item in node.names]
    if isinstance(node, ast.ImportFrom):
        if node.level or "*" in modules:
            return False
        modules = [node.module or ""]
    return not any(module.partition(".")[0] in _KNOWN for module in modules)


def _absent(module: str) -> str:
    return f"no candidate may use {module}"
