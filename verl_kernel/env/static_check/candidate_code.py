# SPDX-License-Identifier: Apache-2.0
"""A candidate's module as it runs: compiled from the tree that the gate reads, whose definitions kernels are made from.

Nothing is looked up in the text a second time: a kernel is made from the very definition that this tree holds.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from verl_kernel.env.parse import parse

_DEFINITIONS: dict[int, tuple[CodeType, ast.FunctionDef]] = {}
"""Definitions by the id of the code made of them; the code is kept, so that its id stays its own."""


def load(name: str, path: str) -> ModuleType:
    """Run a candidate's file as the module `name`.

    Args:
        name: what the module is called, and found as in `sys.modules`.
        path: the file; `if __name__ == "__main__":` in it never runs.

    Raises:
        SyntaxError, ValueError: the file is not Python.
        Exception: whatever the source raises.
    """
    tree = parse(Path(path).read_bytes().decode("utf-8", "surrogatepass"))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    code = _bound(compile(tree, path, "exec", dont_inherit=True), _functions(tree))
    sys.modules[name] = module
    exec(code, vars(module))
    return module


def definition(function: FunctionType) -> ast.FunctionDef | None:
    """The checked definition that a function of a candidate was made from; None for any other function."""
    code, node = _DEFINITIONS.get(id(function.__code__), (None, None))
    return node if code is function.__code__ else None


def is_loaded() -> bool:
    """Whether this process has a candidate."""
    return bool(_DEFINITIONS)


def _functions(tree: ast.Module) -> dict[tuple[str, int], ast.FunctionDef]:
    """Every definition as it was read, by name and first line, which no two share."""
    return {
        (node.name, min((item.lineno for item in node.decorator_list), default=node.lineno)): _untouched(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }


def _untouched(node: ast.FunctionDef) -> ast.FunctionDef:
    bare = ast.FunctionDef(name=node.name, args=node.args, body=list(node.body), decorator_list=[], returns=None)
    bare.type_params = []  # type: ignore[attr-defined]  # Python 3.12 wants it
    return ast.copy_location(bare, node)


def _bound(code: CodeType, functions: dict[tuple[str, int], ast.FunctionDef]) -> CodeType:
    """The code, with the definition noted of each function in it."""
    inner = (_bound(item, functions) if isinstance(item, CodeType) else item for item in code.co_consts)
    bound = code.replace(co_consts=tuple(inner))
    if node := functions.get((code.co_name, code.co_firstlineno)):
        _DEFINITIONS[id(bound)] = bound, node
    return bound
