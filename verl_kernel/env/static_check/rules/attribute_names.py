# SPDX-License-Identifier: Apache-2.0
"""Rules on attributes that are named by texts: `getattr`, `hasattr` and `setattr`.

Such a text may be put together, as in `setattr(self, f"layer{i}", layer)`. What it may be is a pattern of its literal
parts; the rules refuse it if any name that the text must not write out fits the pattern.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from string import Formatter

import torch

from verl_kernel.env.static_check.allowlist import refusal
from verl_kernel.env.static_check.names import ParsedSource, Violation, at, is_special, loop
from verl_kernel.env.static_check.rules.classes import INTERNALS, may_store
from verl_kernel.env.static_check.rules.host import FORBIDDEN, KERNEL_ATTRIBUTES, READ_IN_FULL, name_reason
from verl_kernel.env.static_check.scopes import FUNCTIONS, Key

_ANY = ".*"
_NUMBER = r"(?:-?\d[\d.e+-]*|-?inf|nan|True|False)"
_READS, _WRITES = frozenset(("getattr", "hasattr")), frozenset(("setattr",))
_HOOKS = frozenset(name for name in dir(torch.nn.Module) if name_reason(name))
_PRIVATE = frozenset(name for name in (*dir(torch.Tensor), *INTERNALS) if name[0] == "_")
_CLOSED = {
    _READS: frozenset((*FORBIDDEN, *READ_IN_FULL, *_HOOKS, *_PRIVATE)),
    _WRITES: frozenset((*FORBIDDEN, *READ_IN_FULL, *INTERNALS, "forward")),
}
"""Names that no object's attribute may be read by, and those that none may be set by."""


def named_attributes(program: ParsedSource) -> Iterator[Violation]:
    """Yield uses of `getattr`, `hasattr` and `setattr` whose attribute might be one that must not be used."""
    for node in program.every(ast.Name):
        if node.id in _READS | _WRITES and isinstance(node.ctx, ast.Load) and program.may_be_builtin(node):
            call, name = program.parents[id(node)], node.id
            if not isinstance(call, ast.Call) or call.func is not node or not _is_plain(program, call, name):
                owner = " of self" if name in _WRITES else ""
                yield at(node, "getattr", f"{name} needs the name of an ordinary attribute{owner}")


def _is_plain(program: ParsedSource, call: ast.Call, function: str) -> bool:
    arguments = call.args
    if len(arguments) < 2 or call.keywords or any(isinstance(item, ast.Starred) for item in arguments):
        return False
    if function in _WRITES:
        if len(arguments) != 3 or not may_store(program, arguments[0]) or _is_function(program, arguments[2]):
            return False
        return _is_open(pattern(program, arguments[1]), _WRITES)
    paths, name = program.paths(arguments[0]), arguments[1].value if isinstance(arguments[1], ast.Constant) else None
    if isinstance(name, str):
        closed = any(refusal(f"{path}.{name}") for path in paths) or is_special(name)
        return not closed and (function == "hasattr" or _may_be_read(program, arguments[0], name))
    return not paths and not program.kernels_named(arguments[0]) and _is_open(pattern(program, arguments[1]), _READS)


def _is_function(program: ParsedSource, value: ast.AST) -> bool:
    """Whether a value is a function of the text, whose calls by a name that is put together no rule would see."""
    values = program.values(value.id, value) if isinstance(value, ast.Name) else [value]
    return any(isinstance(item, FUNCTIONS) for item in values)


def _may_be_read(program: ParsedSource, base: ast.AST, name: str) -> bool:
    if program.kernels_named(base):
        return name in KERNEL_ATTRIBUTES
    return name not in _CLOSED[_READS] and not name_reason(name)


def _is_open(text: str, kind: frozenset[str]) -> bool:
    """Whether no closed name and no special name fits a pattern."""
    if text.startswith((_ANY, _NUMBER, "__", "_" + _ANY)) or not text:
        return False
    fits = re.compile(text).fullmatch
    return not any(map(fits, _CLOSED[kind])) and not fits("register_x_hook")


def pattern(program: ParsedSource, node: ast.AST) -> str:
    """Return a regular expression that every text fits which an expression may be."""
    if isinstance(node, ast.Constant):
        return re.escape(str(node.value))
    if isinstance(node, ast.JoinedStr):
        return "".join(pattern(program, item) for item in node.values)
    if isinstance(node, ast.FormattedValue):
        return _ANY if node.format_spec is not None or node.conversion != -1 else pattern(program, node.value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return pattern(program, node.left) + pattern(program, node.right)
    if isinstance(node, ast.Call):
        return _called(program, node)
    if _is_count(program, node):
        return _NUMBER
    return _either(program, node) if isinstance(node, ast.Name) else _ANY


def _is_count(program: ParsedSource, node: ast.AST) -> bool:
    """Whether an expression is a number that Python counted; annotations promise numbers, and keep no promise."""
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    if isinstance(node, ast.BinOp):
        return _is_count(program, node.left) and _is_count(program, node.right)
    if isinstance(node, ast.Call):
        return program.is_builtin(node.func) and getattr(node.func, "id", "") in ("len", "int")
    if not isinstance(node, ast.Name):
        return False
    key = program.key(node.id, node)
    counted = program.once("counted", "", lambda: _counted(program))
    return counted[key] == program.stores[key] > 0 and key not in program.parameters | program.defined


def _counted(program: ParsedSource) -> Counter[Key]:
    """Return how often loops over `range` and `enumerate` bind each name to a number."""
    counts: Counter[Key] = Counter()
    for node in program.nodes:
        if (repeated := loop(node)) is None:
            continue
        target, items = repeated.target, repeated.iter
        if not isinstance(items, ast.Call) or not program.is_builtin(items.func):
            continue
        by = getattr(items.func, "id", "")
        number = target.elts[0] if by == "enumerate" and isinstance(target, ast.Tuple) else target
        if isinstance(number, ast.Name) and (by == "range" or number is not target):
            counts[program.key(number.id, number)] += 1
    return counts


def _called(program: ParsedSource, call: ast.Call) -> str:
    function = call.func
    is_text = isinstance(function, ast.Name) and function.id == "str" and program.is_builtin(function)
    if is_text and len(call.args) == 1:
        return pattern(program, call.args[0])
    if isinstance(function, ast.Attribute) and function.attr == "format" and isinstance(function.value, ast.Constant):
        try:
            return "".join(
                re.escape(text) + ("" if name is None else _ANY)
                for text, name, *_ in Formatter().parse(str(function.value.value))
            )
        except ValueError:
            return _ANY
    return _NUMBER if _is_count(program, call) else _ANY


def _either(program: ParsedSource, name: ast.Name) -> str:
    """Return a pattern of the constant texts that a loop or an assignment gives a name."""
    key = program.key(name.id, name)
    options = [text for texts in program.once("texts", "", lambda: _texts(program)).get(key, []) for text in texts]
    complete = len(program.once("texts", "", lambda: _texts(program)).get(key, [])) == program.stores[key]
    if key in program.parameters | program.defined or not options or not complete:
        return _ANY
    return f"(?:{'|'.join(map(re.escape, options))})"


def _texts(program: ParsedSource) -> dict[object, list[list[str]]]:
    """Return for each name the lists of texts that its bindings may give it, one for each binding that is known."""
    assigned: dict[object, list[list[str]]] = {}
    for node in program.nodes:
        for target, values in _bindings(program, node):
            texts = [item.value for item in values if isinstance(item, ast.Constant) and isinstance(item.value, str)]
            if len(texts) == len(values):
                assigned.setdefault(program.key(target.id, target), []).append(texts)
    return assigned


def _bindings(program: ParsedSource, node: ast.AST) -> Iterator[tuple[ast.Name, list[ast.expr]]]:
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and len(node.targets) == 1:
        yield node.targets[0], [node.value]
    elif (repeated := loop(node)) is not None:
        items = _items(program, repeated.iter)
        if isinstance(repeated.target, ast.Name):
            yield repeated.target, items
        elif isinstance(repeated.target, ast.Tuple):
            for index, target in enumerate(repeated.target.elts):
                inner = [item.elts[index : index + 1] for item in items if isinstance(item, ast.Tuple | ast.List)]
                if isinstance(target, ast.Name) and items and all(inner) and len(inner) == len(items):
                    yield target, [item for parts in inner for item in parts]


def _items(program: ParsedSource, node: ast.expr) -> list[ast.expr]:
    """Return the items of a literal list, or of a name for one tuple; of others a value that is no text."""
    if isinstance(node, ast.Name):
        values = program.values(node.id, node)
        is_constant = len(values) == 1 and program.stores[program.key(node.id, node)] == 1
        node = values[0] if is_constant and isinstance(values[0], ast.Tuple) else node  # a list could be changed
    return list(node.elts) if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
