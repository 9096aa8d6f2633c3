# SPDX-License-Identifier: Apache-2.0
"""The rule on NumPy: a few of its functions are allowed on values that are provably plain numbers.

A number is a literal, a size of a tensor, a result of `int`, `float`, `len` and `math`, a parameter annotated as a
number or of the model's `__init__`, arithmetic on these, and names and attributes that are bound only to numbers.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator

from verl_kernel.env.static_check.allowlist import NUMPY_CONSTANTS
from verl_kernel.env.static_check.names import ParsedSource, Violation, at, loop
from verl_kernel.env.static_check.scopes import FUNCTIONS, Key

_ALWAYS = frozenset("int float bool len".split())
_OF_NUMBERS = frozenset("abs round min max sum pow divmod".split())
_SAME_ITEMS = frozenset("tuple list sorted reversed set".split())
_SIZE_METHODS = frozenset("numel dim nelement ndimension element_size".split())
_SIZE_ATTRIBUTES = frozenset("ndim itemsize multi_processor_count max_threads_per_multi_processor warp_size".split())
_WORDS = frozenset("int float bool Optional Union Tuple List Sequence Iterable tuple list None".split())
_REMEDY = "NumPy is for sizes: give it plain numbers, as in int(n), and use kernels for tensors"
Test = Callable[[ParsedSource, ast.AST], bool]


def numpy_calls(program: ParsedSource) -> Iterator[Violation]:
    """Yield uses of NumPy's functions other than direct calls with plain numbers."""
    for node in program.every(ast.Name, ast.Attribute) if program.uses("numpy.") else []:
        if not isinstance(node.ctx, ast.Load):
            continue
        functions = {path for path in program.paths(node) if path.startswith("numpy.")} - NUMPY_CONSTANTS
        parent = program.parents[id(node)]
        if not functions or isinstance(parent, (ast.Attribute, ast.Assign)):
            continue
        if not isinstance(parent, ast.Call) or parent.func is not node:
            yield at(node, "numpy", f"{sorted(functions)[0]} must be called where it is named")
        elif parent.keywords or not all(is_number(program, item) or is_sizes(program, item) for item in parent.args):
            yield at(node, "numpy", f"{sorted(functions)[0]}: {_REMEDY}")


def is_number(program: ParsedSource, node: ast.AST) -> bool:
    """Whether an expression is a plain number in every run."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float)
    if isinstance(node, ast.UnaryOp):
        return is_number(program, node.operand)
    if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult):
        return is_number(program, node.left) and is_number(program, node.right)
    if isinstance(node, ast.IfExp):
        return is_number(program, node.body) and is_number(program, node.orelse)
    if isinstance(node, ast.Subscript):
        return _is_item(program, node)
    if isinstance(node, ast.Call):
        return _returns_number(program, node)
    return _holds(program, node, is_number)


def is_sizes(program: ParsedSource, node: ast.AST) -> bool:
    """Whether an expression is a sequence of plain numbers in every run."""
    if isinstance(node, ast.Tuple | ast.List):
        return all(is_number(program, item) for item in node.elts)
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        return is_number(program, node.elt)
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Slice) and is_sizes(program, node.value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return is_sizes(program, node.left) and is_sizes(program, node.right)
    if isinstance(node, ast.Call):
        return _returns_sizes(program, node)
    return _holds(program, node, is_sizes)


def _is_item(program: ParsedSource, node: ast.Subscript) -> bool:
    key = node.slice
    if isinstance(key, ast.Constant) and isinstance(key.value, str):  # meta["BLOCK"] in a grid, CONFIG["block"]
        table = node.value
        return isinstance(table, ast.Name) and (key.value in program.constexprs or _is_table(program, table))
    return not isinstance(key, ast.Slice) and is_sizes(program, node.value)


def _is_table(program: ParsedSource, name: ast.Name) -> bool:
    """Whether a name is a dictionary of numbers that is only read and filled by item, never passed as a value."""
    key, values = program.key(name.id, name), program.values(name.id, name)
    if len(values) != 1 or program.stores[key] != 1 or not isinstance(first := values[0], ast.Dict):
        return False
    reads = program.once("numbers", "reads", lambda: _reads(program))[key]
    stored = [_kept(program, use) for use in reads]
    return _asked(
        program,
        is_number,
        ("table", key),
        lambda: all(item is not None and is_number(program, item) for item in (*first.values, *stored)),
    )


def _reads(program: ParsedSource) -> dict[Key, list[ast.Name]]:
    reads: dict[Key, list[ast.Name]] = defaultdict(list)
    for node in program.every(ast.Name):
        if isinstance(node.ctx, ast.Load):
            reads[program.key(node.id, node)].append(node)
    return reads


def _kept(program: ParsedSource, name: ast.Name) -> ast.expr | None:
    """Return the value in `name[...] = value`, 0 if an item is only read, None for any other use."""
    item = program.parents[id(name)]
    if not isinstance(item, ast.Subscript) or item.value is not name:
        return None
    holder = program.parents[id(item)]
    if isinstance(item.ctx, ast.Load):
        return ast.Constant(0)
    return holder.value if isinstance(holder, ast.Assign | ast.AugAssign) else None


def _returns_number(program: ParsedSource, call: ast.Call) -> bool:
    function, paths = call.func, program.paths(call.func)
    if paths == {"functools.reduce"} and len(call.args) > 1:
        first, *further = call.args
        folded = program.paths(first) and all(path.startswith("operator.") for path in program.paths(first))
        return bool(folded) and all(is_number(program, item) or is_sizes(program, item) for item in further)
    if paths:
        return all(path.startswith(("math.", "numpy.")) or path == "torch.numel" for path in paths) or (
            paths <= {"triton.cdiv", "triton.next_power_of_2"} and all(is_number(program, item) for item in call.args)
        )
    if isinstance(function, ast.Name) and program.is_builtin(function):
        are_numbers = all(is_number(program, item) or is_sizes(program, item) for item in call.args)
        return function.id in _ALWAYS or (function.id in _OF_NUMBERS and are_numbers)
    if isinstance(function, ast.Attribute) and function.attr not in program.named:
        return function.attr in _SIZE_METHODS or (function.attr in ("size", "stride") and len(call.args) == 1)
    return False


def _returns_sizes(program: ParsedSource, call: ast.Call) -> bool:
    function = call.func
    if isinstance(function, ast.Name) and program.is_builtin(function):
        return function.id == "range" or (
            function.id in _SAME_ITEMS and all(is_sizes(program, item) for item in call.args)
        )
    own = isinstance(function, ast.Attribute) and function.attr in program.named
    return isinstance(function, ast.Attribute) and function.attr in ("size", "stride") and not call.args and not own


def _holds(program: ParsedSource, node: ast.AST, test: Test) -> bool:
    """Whether all values of a name or attribute pass a test; in a cycle, a value whose test is in progress passes."""
    if isinstance(node, ast.Attribute):
        if program.paths(node):
            return all(path.startswith("math.") or path in NUMPY_CONSTANTS for path in program.paths(node))
        bound = _sources(program)[1].get(node.attr)
        if bound is None and test is is_number:
            member = node.attr == "value" and is_number(program, node.value)  # `.value` of an enumeration's member
            return member or node.attr in _SIZE_ATTRIBUTES or _is_named_tuple(program, node.value)
        if bound is None:
            return node.attr == "shape"
        return _asked(program, test, node.attr, lambda: all(passes(test) for passes in bound))
    if not isinstance(node, ast.Name):
        return False
    key = program.key(node.id, node)
    if key in program.parameters:
        return program.stores[key] == 0 and _is_number_parameter(program, key, test)
    sources = _sources(program)[0].get(key, [])
    complete = bool(sources) and len(sources) == program.stores[key] and key not in program.defined
    return complete and _asked(program, test, key, lambda: all(passes(test) for passes in sources))


def _is_named_tuple(program: ParsedSource, node: ast.AST) -> bool:
    """Whether an expression creates a named tuple of plain numbers, as in `Launch(256).block`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    kinds = [item for item in program.values(node.func.id, node.func) if isinstance(item, ast.Call)]
    is_made = bool(kinds) and all("collections.namedtuple" in program.paths(item.func) for item in kinds)
    arguments = (*node.args, *(keyword.value for keyword in node.keywords))
    return (
        is_made
        and len(kinds) == len(program.values(node.func.id, node.func))
        and all(is_number(program, item) for item in arguments)
    )


def _asked(program: ParsedSource, test: Test, about: object, answer: Callable[[], bool]) -> bool:
    answers = program.once("numbers", "known", dict[tuple[Test, object], bool])
    if (test, about) not in answers:
        answers[test, about] = True  # assumed while the answer is computed, so that cycles end
        answers[test, about] = answer()
    return answers[test, about]


def _is_number_parameter(program: ParsedSource, key: Key, test: Test) -> bool:
    function = key[0].node
    if not isinstance(function, FUNCTIONS):
        return False
    arguments = function.args
    for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if item.arg == key[1]:
            if item.annotation is None:
                entry = key[0].parent is not None and getattr(key[0].parent.node, "name", "") == program.entry
                return entry and getattr(function, "name", "") == "__init__" and test is is_number
            words = {part.id for part in ast.walk(item.annotation) if isinstance(part, ast.Name)}
            return bool(words) and words <= _WORDS
    return False


Passes = Callable[[Test], bool]


def _sources(program: ParsedSource) -> tuple[dict[Key, list[Passes]], dict[str, list[Passes]]]:
    """Return for each name and each attribute its values, as functions that apply a test to them."""
    return program.once("numbers", "sources", lambda: _found_sources(program))


def _found_sources(program: ParsedSource) -> tuple[dict[Key, list[Passes]], dict[str, list[Passes]]]:
    names: dict[Key, list[Passes]] = defaultdict(list)
    attributes: dict[str, list[Passes]] = defaultdict(list)
    for node in program.nodes:
        for target, passes in _bound_here(program, node):
            if isinstance(target, ast.Name):
                key = program.key(target.id, target)
                names[key].append(passes)
                if key[0].is_class:
                    attributes[target.id].append(passes)
            elif isinstance(target, ast.Attribute):
                attributes[target.attr].append(passes)
            elif isinstance(target, ast.Tuple | ast.List | ast.Starred):
                for inner in ast.walk(target):
                    if isinstance(inner, ast.Attribute):
                        attributes[inner.attr].append(lambda test: False)
    starts = tuple(_set_by_text(program))
    for name in [*program.named, *(name for name in attributes if name.startswith(starts))]:
        attributes[name].append(lambda test: False)
    return names, attributes


def _set_by_text(program: ParsedSource) -> Iterator[str]:
    """Yield the literal starts of the names that `setattr` may set: those attributes may hold anything."""
    for call in program.every(ast.Call):
        if isinstance(call.func, ast.Name) and call.func.id == "setattr" and len(call.args) > 1:
            text: ast.expr = call.args[1]
            while isinstance(text, ast.BinOp | ast.JoinedStr):
                text = text.left if isinstance(text, ast.BinOp) else (text.values or [ast.Constant("")])[0]
            yield str(text.value) if isinstance(text, ast.Constant) else ""


def _bound_here(program: ParsedSource, node: ast.AST) -> Iterator[tuple[ast.AST, Passes]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _bound_to(program, target, node.value)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr | ast.AugAssign):
        value = node.value
        annotated = isinstance(node, ast.AnnAssign) and getattr(node.annotation, "id", "") in ("int", "float")
        yield node.target, lambda test: test(program, value) if value is not None else annotated
    elif (repeated := loop(node)) is not None:
        items, target = repeated.iter, repeated.target
        if isinstance(target, ast.Tuple) and _counts(program, items):
            yield target.elts[0], lambda test: test is is_number
            yield from ((inner, lambda test: False) for inner in target.elts[1:])
        else:
            yield target, lambda test: test is is_number and is_sizes(program, items)


def _counts(program: ParsedSource, items: ast.AST) -> bool:
    """Whether an expression is `enumerate(...)`, whose pairs begin with a number."""
    return isinstance(items, ast.Call) and program.is_builtin(items.func) and items.func.id == "enumerate"  # type: ignore[attr-defined]


def _bound_to(program: ParsedSource, target: ast.AST, value: ast.expr) -> Iterator[tuple[ast.AST, Passes]]:
    if not isinstance(target, ast.Tuple | ast.List):
        yield target, lambda test: test(program, value)
    elif isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
        for inner, item in zip(target.elts, value.elts, strict=True):
            yield inner, lambda test, item=item: test(program, item)  # type: ignore[misc]
    else:
        for inner in target.elts:
            yield inner, lambda test: test is is_number and is_sizes(program, value)
