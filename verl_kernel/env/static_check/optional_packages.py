# SPDX-License-Identifier: Apache-2.0
"""Packages that a candidate tries to import and can do without: none of them is there.

A guard such as `try: import flash_attn` with `except ImportError`, or `find_spec("flash_attn") is not None`, is common,
and its program must behave the same whatever is installed. So a package that no candidate may use is imported in a
`try`, and looked for, by a name that no package can have.
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
    """Let these imports fail, and none of these packages be found; names stay what they are to the compiler."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (name := looked_for(node)) and not is_known(name):
            node.args = [ast.copy_location(ast.Constant(_absent(name)), node.args[0])]
    for node in optional_imports(tree):
        if isinstance(node, ast.ImportFrom):
            node.module = _absent(node.module or "")
        else:
            for item in node.names:
                item.asname, item.name = item.asname or item.name.partition(".")[0], _absent(item.name)


def looked_for(call: ast.Call) -> str:
    """Return the literal name of the package in a call `find_spec("name")`; an empty text for any other call."""
    function = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if function != "find_spec" or len(call.args) != 1 or call.keywords:
        return ""
    name = call.args[0].value if isinstance(call.args[0], ast.Constant) else ""
    return name if isinstance(name, str) else ""


def is_known(module: str) -> bool:
    """Whether a module is Python's own or in a package that a candidate may use."""
    return module.partition(".")[0] in _KNOWN


def _is_foreign(node: ast.Import | ast.ImportFrom) -> bool:
    modules = [item.name for item in node.names]
    if isinstance(node, ast.ImportFrom):
        if node.level or "*" in modules:
            return False
        modules = [node.module or ""]
    return not any(map(is_known, modules))


def _absent(module: str) -> str:
    return f"no candidate may use {module}"
