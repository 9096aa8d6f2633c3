# SPDX-License-Identifier: Apache-2.0
"""Compiles and runs a candidate's module from the tree that the gate reads; kernels are compiled from the same tree.

The text is not read a second time: a kernel is compiled from exactly the definition in this tree.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from verl_kernel.env.parse import parse
from verl_kernel.env.static_check.optional_packages import remove_optional_packages

_DEFINITIONS: dict[int, tuple[CodeType, ast.FunctionDef]] = {}
"""Definitions by the id of their code object, which is kept so that its id is not reused."""


def load(name: str, path: str) -> ModuleType:
    """Run a candidate's file as the module `name`.

    Args:
        name: name of the module, also in `sys.modules`.
        path: the file; `if __name__ == "__main__":` in it never runs.

    Raises:
        SyntaxError, ValueError: the file is not Python.
        Exception: any exception that the source raises.
    """
    tree = parse(Path(path).read_bytes().decode("utf-8", "surrogatepass"))
    remove_optional_packages(tree)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    code = _bound(compile(tree, path, "exec", dont_inherit=True), _functions(tree))
    sys.modules[name] = module
    exec(code, vars(module))
    return module


def definition(function: FunctionType) -> ast.FunctionDef | None:
    """Return the checked definition of a candidate's function; None for any other function."""
    code, node = _DEFINITIONS.get(id(function.__code__), (None, None))
    return node if code is function.__code__ else None


def is_loaded() -> bool:
    """Whether this process has loaded a candidate."""
    return bool(_DEFINITIONS)


def _functions(tree: ast.Module) -> dict[tuple[str, int], ast.FunctionDef]:
    """Return every definition as it was read, by name and first line, which no two definitions share."""
    return {
        (node.name, min((item.lineno for item in node.decorator_list), default=node.lineno)): _untouched(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }


def _untouched(node: ast.FunctionDef) -> ast.FunctionDef:
    bare = ast.FunctionDef(name=node.name, args=node.args, body=list(node.body), decorator_list=[], returns=None)
    bare.type_params = []  # type: ignore[attr-defined]  # Python 3.12 requires it
    return ast.copy_location(bare, node)


def _bound(code: CodeType, functions: dict[tuple[str, int], ast.FunctionDef]) -> CodeType:
    """Return a copy of the code, with the definition of each function in it recorded."""
    inner = (_bound(item, functions) if isinstance(item, CodeType) else item for item in code.co_consts)
    bound = code.replace(co_consts=tuple(inner))
    if node := functions.get((code.co_name, code.co_firstlineno)):
        _DEFINITIONS[id(bound)] = bound, node
    return bound
