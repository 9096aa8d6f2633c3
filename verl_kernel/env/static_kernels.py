# SPDX-License-Identifier: Apache-2.0
"""Rules on kernels and on what is handed to their launches.

A kernel is Triton: `triton.language`, other jit functions, a few builtins. A callable handed to a launch (a grid,
heuristics, hooks, pruning of configurations) computes integers: work in there would not be seen by any clock.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from verl_kernel.env.static_names import FUNCTIONS, Program
from verl_kernel.env.static_violation import Violation, at

_KERNEL_BUILTINS = frozenset(
    "range min max len int float bool tuple list print isinstance abs sum pow str type".split()
)
_KERNEL_MODULES = ("triton.", "math.", "typing.")
_NUMBERS = frozenset("min max int len abs range sum float bool round isinstance sorted list tuple dict any all zip "
                     "enumerate set str".split())  # fmt: skip
_NUMBER_PATHS = frozenset(("triton.cdiv", "triton.next_power_of_2", "triton.Config"))
_NUMBER_METHODS = frozenset("numel size stride dim get items keys values element_size bit_length is_contiguous "
                            "all_kwargs".split())  # fmt: skip
_LIST_METHODS = frozenset(("append", "extend"))
_HOOKS = frozenset(("pre_hook", "post_hook"))
_RESETS = frozenset(("zero_", "fill_"))
_TUNERS = frozenset(("triton.autotune", "triton.Config", "triton.heuristics"))


def kernels(program: Program) -> Iterator[Violation]:
    """Kernels use triton.language, other kernels and a few builtins."""
    for function in program.nodes:
        if isinstance(function, ast.FunctionDef) and program.is_jit(function):
            for statement in function.body:
                for node in ast.walk(statement):
                    if reason := _foreign(program, node):
                        yield at(node, "kernel", reason)


def _foreign(program: Program, node: ast.AST) -> str:
    if isinstance(node, ast.Lambda | ast.FunctionDef | ast.ClassDef):
        return "a kernel must not define functions or classes: write a @triton.jit function beside it"
    if isinstance(node, ast.Name | ast.Attribute):
        closed = sorted(path for path in program.paths(node) if not f"{path}.".startswith(_KERNEL_MODULES))
        return f"{closed[0]} cannot be used in a kernel: use triton.language" if closed else ""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return ""
    name, bound = node.func.id, program.key(node.func.id, node) in program.bound
    if not bound and name not in _KERNEL_BUILTINS:
        return f"{name} cannot be called in a kernel"
    plain = [item for item in program.named.get(name, []) if isinstance(item, ast.FunctionDef)]
    if plain and not any(item.decorator_list for item in plain):
        return f"a kernel calls {name}, which is no kernel: decorate it with @triton.jit"
    return ""


def launches(program: Program) -> Iterator[Violation]:
    """Callables handed to launches and tuners compute integers only."""
    seen: set[int] = set()
    for node in program.nodes:
        for value, may_reset in _handed(program, node):
            for function in _callables(program, value):
                if id(function) not in seen:
                    seen.add(id(function))
                    yield from _only_numbers(program, function, may_reset)
        if isinstance(node, ast.Call) and program.paths(node.func) & _TUNERS:
            for keyword in node.keywords:
                if keyword.arg is None or keyword.arg == "do_bench":
                    yield at(node, "launch", f"{keyword.arg or '**'} is not allowed here: write the arguments out")


def _handed(program: Program, node: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    if isinstance(node, ast.Subscript):  # a launch, now or later: `run = kernel[grid]`
        yield node.slice, False
    if not isinstance(node, ast.Call):
        return
    paths = program.paths(node.func)
    for keyword in node.keywords:
        if keyword.arg in _HOOKS:
            yield keyword.value, True
        elif keyword.arg in ("grid", "prune_configs_by"):
            yield keyword.value, False
    if "triton.heuristics" in paths:
        yield from ((item, False) for item in (*node.args, *(keyword.value for keyword in node.keywords)))
    elif "triton.autotune" in paths:
        yield from ((item, True) for item in node.args[2:])
    elif "triton.Config" in paths:
        yield from ((item, True) for item in node.args[1:])
    elif "triton.set_allocator" not in paths and isinstance(node.func, ast.Name | ast.Attribute):
        if isinstance(node.func, ast.Attribute) or node.func.id in program.named:
            yield from ((item, False) for item in node.args if isinstance(item, ast.Lambda))


def _callables(program: Program, value: ast.AST) -> Iterator[ast.AST]:
    """Functions of the text that an expression may hand over."""
    for node in ast.walk(value):
        if isinstance(node, ast.Lambda):
            yield node
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            name = node.id if isinstance(node, ast.Name) else node.attr
            found = program.values(name, node) if isinstance(node, ast.Name) else program.named.get(name, [])
            for item in found:
                if isinstance(item, FUNCTIONS) and not program.is_jit(item):
                    yield item
                elif isinstance(item, ast.Dict | ast.Lambda):
                    yield from (inner for inner in ast.walk(item) if isinstance(inner, ast.Lambda))


def _only_numbers(program: Program, function: ast.AST, may_reset: bool) -> Iterator[Violation]:
    waiting, seen = [function], {id(function)}
    while waiting:
        current = waiting.pop()
        body = current.body if isinstance(current, ast.Lambda) else ast.Module(getattr(current, "body", []), [])
        for node in ast.walk(body):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                own = [item for item in program.values(node.func.id, node) if isinstance(item, FUNCTIONS)]
                waiting.extend(item for item in own if id(item) not in seen)
                seen.update(map(id, own))
                if own:
                    continue
            if reason := _computes(program, node, may_reset):
                yield at(node, "launch", f"{reason} in a callable handed to a launch: compute integers only")


def _computes(program: Program, node: ast.AST, may_reset: bool) -> str:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return "a matrix product is not allowed"
    if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
        local = isinstance(node.value, ast.Name) and isinstance(node, ast.Subscript)
        return "" if local or getattr(node, "attr", "") == "block_shape" else "an assignment is not allowed"
    if not isinstance(node, ast.Call):
        return ""
    function, paths = node.func, program.paths(node.func)
    if paths:
        known = paths <= _NUMBER_PATHS or all(path.startswith("math.") for path in paths)
        return "" if known else f"{sorted(paths)[0]} is not allowed"
    if isinstance(function, ast.Name):
        return "" if function.id in _NUMBERS else f"{function.id} is not allowed"
    if isinstance(function, ast.Attribute):
        return _method(program, function, may_reset)
    return "such a call is not allowed"


def _method(program: Program, function: ast.Attribute, may_reset: bool) -> str:
    name = function.attr
    if name in _NUMBER_METHODS or (may_reset and name in _RESETS):
        return ""
    if name in _LIST_METHODS and isinstance(function.value, ast.Name):
        at_home = program.key(function.value.id, function)[0] == id(program.scopes[id(function)])
        return "" if at_home else f"{name} on {function.value.id} is not allowed"
    return f".{name}() is not allowed"
