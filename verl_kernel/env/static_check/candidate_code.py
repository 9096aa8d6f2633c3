# SPDX-License-Identifier: Apache-2.0
"""A candidate's module as it runs: compiled from the tree that the gate reads, every function of it watched.

Nothing is looked up in the text a second time. A kernel is made from the very definition that this tree holds, and each
function, lambda and generator of the source begins with a call of a hook, so that none runs unobserved (from inside a
launch, say). The hook is a constant in the code object, where no name of the source can reach or replace it.
"""

from __future__ import annotations

import ast
import importlib.util
import secrets
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from verl_kernel.env.parse import parse

Watch = Callable[[], bool]
"""Called where a function of the source begins; raises where none may run, else returns False."""
_DEFINITIONS: dict[int, tuple[CodeType, ast.FunctionDef]] = {}
"""Definitions by the id of the code made of them; the code is kept, so that its id stays its own."""


def load(name: str, path: str, watch: Watch | None = None) -> ModuleType:
    """Run a candidate's file as the module `name`.

    Args:
        name: what the module is called, and found as in `sys.modules`.
        path: the file; `if __name__ == "__main__":` in it never runs.
        watch: called at the head of each of its functions.

    Raises:
        SyntaxError, ValueError: the file is not Python.
        Exception: whatever the source raises.
    """
    tree = parse(Path(path).read_bytes().decode("utf-8", "surrogatepass"))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    code = _compile(tree, path, watch)
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


def _compile(tree: ast.Module, path: str, watch: Watch | None) -> CodeType:
    mark = secrets.token_hex(16)
    functions = _functions(tree)
    if watch is not None:
        for node in list(ast.walk(tree)):
            _begin_watched(node, mark)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a call of a string, which stands for the hook until `_bound` replaces it
        code = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
    return _bound(code, mark, watch, functions)


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


def _begin_watched(node: ast.AST, mark: str) -> None:
    def call(at: ast.AST) -> ast.Call:
        return ast.copy_location(ast.Call(func=ast.Constant(mark), args=[], keywords=[]), at)

    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        behind = 1 if ast.get_docstring(node, clean=False) is not None else 0
        node.body.insert(behind, ast.copy_location(ast.Expr(call(node)), node))
    elif isinstance(node, ast.Lambda):
        node.body = ast.copy_location(ast.BoolOp(ast.Or(), [call(node), node.body]), node.body)
    elif isinstance(node, ast.GeneratorExp):
        node.generators[0].ifs.insert(0, ast.copy_location(ast.UnaryOp(ast.Not(), call(node)), node))


def _bound(
    code: CodeType, mark: str, watch: Watch | None, functions: dict[tuple[str, int], ast.FunctionDef]
) -> CodeType:
    """The code with the mark replaced by what it stands for, here and in all code within."""
    bound = code.replace(co_consts=tuple(_constants(code, mark, watch, functions)))
    if node := functions.get((code.co_name, code.co_firstlineno)):
        _DEFINITIONS[id(bound)] = bound, node
    return bound


def _constants(
    code: CodeType, mark: str, watch: Watch | None, functions: dict[tuple[str, int], ast.FunctionDef]
) -> Iterator[object]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield _bound(constant, mark, watch, functions)
        else:
            yield watch if isinstance(constant, str) and constant == mark else constant
