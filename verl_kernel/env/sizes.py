# SPDX-License-Identifier: Apache-2.0
"""Reads the sizes of a task from its reference.

A reference names them in `WORKLOADS`, a list of what `get_inputs` is called with: keyword arguments, or one value.
"""

from __future__ import annotations

import ast

from verl_kernel.errors import TaskError

Workload = dict[str, object] | object
NAME = "WORKLOADS"
MOST = 64
"""Most sizes of a task: each has trials of its own."""
AT_SIZE = "_inputs_at_size"
"""Name of the function of a task at one of its sizes that takes what `get_inputs` took."""


def read_workloads(module: ast.Module, task_id: str) -> tuple[Workload, ...]:
    """Return what the sizes of a reference are drawn with; empty where it names none.

    Raises:
        TaskError: `WORKLOADS` is no list of literals, is empty or too long, names a size twice, or `get_inputs` takes
            nothing.
    """
    value = _assigned(module)
    if value is None:
        return ()
    where = f"reference {task_id or '<unnamed>'}: {NAME}"
    try:
        workloads = ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise TaskError(
            f"{where} is no list of literals: write numbers out, as in [{{'rows': 128}}, {{'rows': 257}}]"
        ) from None
    if not isinstance(workloads, list | tuple) or not 1 <= len(workloads) <= MOST:
        raise TaskError(f"{where} must be a list of 1 to {MOST} sizes, as in [{{'rows': 128}}, {{'rows': 257}}]")
    if not all(isinstance(workload, dict) for workload in workloads) and any(
        isinstance(workload, dict) for workload in workloads
    ):
        raise TaskError(f"{where} mixes keyword arguments and single values: write all sizes in one way")
    if any(not all(isinstance(key, str) for key in workload) for workload in workloads if isinstance(workload, dict)):
        raise TaskError(f"{where} holds a key that is no text: keys are names of get_inputs's parameters")
    if len({size_name(workload) for workload in workloads}) < len(workloads):
        raise TaskError(f"{where} names a size twice: name each once")
    if not _takes_arguments(module):
        raise TaskError(f"{where} is given, and get_inputs takes nothing: give it the parameters that a size sets")
    return tuple(workloads)


def size_name(workload: Workload) -> str:
    """Return the name of a size in results, as in `rows=128,columns=64`."""
    if isinstance(workload, dict):
        return ",".join(f"{key}={value}" for key, value in workload.items())
    return str(workload)


def _assigned(module: ast.Module) -> ast.expr | None:
    """Return what the module assigns to `WORKLOADS` last; None without it, and for a task at one of its sizes."""
    for statement in reversed(module.body):
        if isinstance(statement, ast.Assign) and _names(statement) == [AT_SIZE]:
            return None
        if isinstance(statement, ast.Assign) and _names(statement) == [NAME]:
            return statement.value
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and statement.target.id == NAME
        ):
            return statement.value
    return None


def _names(statement: ast.Assign) -> list[str]:
    return [target.id for target in statement.targets if isinstance(target, ast.Name)]


def _takes_arguments(module: ast.Module) -> bool:
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == "get_inputs"]
    return bool(functions) and _parameters(functions[-1])


def _parameters(function: ast.FunctionDef) -> bool:
    arguments = function.args
    return bool(arguments.args or arguments.posonlyargs or arguments.kwonlyargs or arguments.kwarg or arguments.vararg)
