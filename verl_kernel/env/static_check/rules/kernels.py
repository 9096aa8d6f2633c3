# SPDX-License-Identifier: Apache-2.0
"""Rules on the text of kernels and on callables passed to their launches.

Triton's compiler decides what a kernel may do. A callable passed to a launch (a grid, heuristics, hooks, pruning of
configurations) may only compute integers, because no clock sees work in it.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator

from verl_kernel.env.static_check.allowlist import NUMPY_CONSTANTS, refusal
from verl_kernel.env.static_check.names import (
    NOTHING,
    OPERATORS,
    ParsedSource,
    Violation,
    at,
    head,
    is_import,
    root,
    sets_constant,
)
from verl_kernel.env.static_check.scopes import FUNCTIONS

# Rules on the language: statements, `with` blocks, decorators, and the required class.


DECORATORS = frozenset(
    "triton.jit triton.autotune triton.heuristics triton.constexpr_function triton.language.constexpr torch.no_grad "
    "torch.inference_mode torch.enable_grad dataclasses.dataclass functools.lru_cache functools.cache "
    "functools.cached_property torch.amp.custom_fwd torch.amp.custom_bwd torch.cuda.amp.custom_fwd "
    "torch.cuda.amp.custom_bwd torch.autograd.function.once_differentiable abc.abstractmethod enum.unique "
    "torch.compiler.disable torch.compiler.allow_in_graph".split()
)
_PLAIN_DECORATORS = frozenset("staticmethod classmethod property".split())
CONTEXTS = frozenset(
    "contextlib.nullcontext "
    "torch.no_grad torch.inference_mode torch.enable_grad torch.set_grad_enabled torch.device torch.cuda.device "
    "torch.cuda.device_of torch.accelerator.device_index torch.autocast torch.amp.autocast torch.cuda.amp.autocast "
    "torch.autograd.no_grad torch.autograd.inference_mode torch.autograd.set_grad_enabled".split()
)
_FACTS = frozenset(
    "torch.cuda.get_device_properties torch.cuda.get_device_capability torch.cuda.get_device_name "
    "torch.cuda.is_available torch.cuda.device_count torch.cuda.current_device "
    "triton.runtime.driver.active.get_current_target triton.runtime.driver.active.utils.get_device_properties".split()
)
"""Functions that say what the device is, and compute nothing."""
_NAMES = (ast.Name, ast.Lambda)
_TEXTS = (ast.Constant, ast.Name, ast.JoinedStr, ast.FormattedValue, ast.Load)
_ERRORS = ("ImportError", "ModuleNotFoundError", "RuntimeError", "ValueError", "NotImplementedError")
"""Errors that a handler of a guarded import may raise."""
_TRY = (ast.Try, getattr(ast, "TryStar", ast.Try))
_FORBIDDEN_STATEMENTS: tuple[tuple[type[ast.AST] | tuple[type[ast.AST], ...], str, str], ...] = (
    (ast.Global, "global", "`global` is not allowed: keep state on self"),
    (ast.Nonlocal, "nonlocal", "`nonlocal` is not allowed: return values instead"),
    ((ast.Yield, ast.YieldFrom), "generator", "`yield` is not allowed: return a list"),
    ((ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith), "async", "async code is not allowed"),
)


def statements(program: ParsedSource) -> Iterator[Violation]:
    """Yield statements that hide state, control flow or failure."""
    for node in program.nodes:
        for kinds, rule, reason in _FORBIDDEN_STATEMENTS:
            if isinstance(node, kinds):
                yield at(node, rule, reason)
        if isinstance(node, _TRY) and not _chooses_a_name(program, node):
            yield at(node, "try", "try is not allowed: let errors surface")
        elif isinstance(node, ast.Delete) and not all(_is_local(program, target) for target in node.targets):
            yield at(node, "del", "del is allowed for local variables, their items and attributes of self only")
        elif isinstance(node, ast.With):
            yield from _contexts(program, node)


def _chooses_a_name(program: ParsedSource, node: ast.AST) -> bool:
    """Whether a `try` only chooses what names mean, imports, parts of modules, facts, constants, or sets an allocator.

    No launch and no op of torch stands in it, so that no failure of one can be hidden.
    """
    if not isinstance(node, ast.Try) or node.finalbody:
        return False

    def chooses(item: ast.stmt) -> bool:
        is_plain = isinstance(item, ast.Pass) or sets_constant(item)
        return is_plain or _may_fail(program, item) or _chooses_a_name(program, item)

    # Only what handles a failed import may speak or raise: in the body, a text of objects would hide their failure.
    handled = [(item, handler.name) for handler in node.handlers for item in handler.body]
    return (
        any(_may_fail(program, item) for item in node.body)
        and all(map(chooses, [*node.body, *node.orelse]))
        and all(
            chooses(item) or _says(program, item, caught) or _fails(program, item, caught) for item, caught in handled
        )
    )


def _may_fail(program: ParsedSource, node: ast.AST) -> bool:
    """Whether a statement asks for what an environment may lack, and does nothing else."""
    return is_import(node) or _names_a_fact(program, node) or _calls(program, node, "triton.set_allocator", _NAMES)


def _says(program: ParsedSource, node: ast.AST, caught: str | None) -> bool:
    """Whether a statement only prints texts, or warns with them."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or call.keywords:
        return False
    prints = program.is_builtin(call.func) and getattr(call.func, "id", "") == "print"
    return (prints or program.paths(call.func) == {"warnings.warn"}) and _are_texts(call, caught)


def _fails(program: ParsedSource, node: ast.AST, caught: str | None) -> bool:
    """Whether a statement only raises what was caught, or an error with a text that no protocol of Python swallows."""
    if not isinstance(node, ast.Raise):
        return False
    made = node.exc
    if isinstance(made, ast.Call):
        name = getattr(made.func, "id", "")
        return name in _ERRORS and program.is_builtin(made.func) and not made.keywords and _are_texts(made, caught)
    return made is None or (isinstance(made, ast.Name) and made.id == caught)


def _are_texts(call: ast.Call, caught: str | None) -> bool:
    """Whether a call is given texts only, in which nothing but the caught exception is named: others may run code."""
    inner = [item for given in call.args for item in ast.walk(given)]
    return all(isinstance(item, _TEXTS) for item in inner) and {
        item.id for item in inner if isinstance(item, ast.Name)
    } <= {caught}


def _calls(program: ParsedSource, node: ast.AST, path: str, kinds: type[ast.AST] | tuple[type[ast.AST], ...]) -> bool:
    """Whether a statement calls this function with arguments of these kinds, in which nothing is called."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or call.keywords or program.paths(call.func) != {path}:
        return False
    return all(isinstance(item, kinds) for item in call.args)


def _names_a_fact(program: ParsedSource, node: ast.AST) -> bool:
    """Whether a node binds a name to a part of a module (`tl.math.tanh`) or to a fact about the device."""
    if not (isinstance(node, ast.Assign) and all(isinstance(target, ast.Name) for target in node.targets)):
        return False
    if program.paths(node.value):
        return True
    base = root(node.value)
    paths = program.paths(base.func) if isinstance(base, ast.Call) else NOTHING
    given = [*base.args, *(item.value for item in base.keywords)] if isinstance(base, ast.Call) else []
    return bool(paths) and paths <= _FACTS and all(isinstance(item, ast.Constant) for item in given)


def _is_local(program: ParsedSource, target: ast.AST) -> bool:
    base = root(target)  # what a target with attributes may be is for the rule on assignments
    return isinstance(base, ast.Name) and not program.is_global(base.id, base)


def _contexts(program: ParsedSource, node: ast.With) -> Iterator[Violation]:
    for item in node.items:
        if not _is_context(program, item.context_expr):
            yield at(item.context_expr, "with", "`with` is allowed for torch.no_grad, autocast and devices only")


def _is_context(program: ParsedSource, value: ast.AST) -> bool:
    """Whether a value is a known context, a choice between some, or a name that is bound to such values only."""
    if isinstance(value, ast.IfExp):
        return _is_context(program, value.body) and _is_context(program, value.orelse)
    if paths := program.paths(head(value)):
        return all(path in CONTEXTS or path.startswith("triton.language.") for path in paths)
    if not isinstance(value, ast.Name):
        return False
    key, values = program.key(value.id, value), program.values(value.id, value)
    is_single = bool(values) and len(values) == program.stores[key] and key not in program.parameters | program.defined
    return is_single and program.once(
        "context",
        key,
        lambda: all(isinstance(item, ast.Call | ast.IfExp) and _is_context(program, item) for item in values),
    )


def decorators(program: ParsedSource) -> Iterator[Violation]:
    """Yield decorators that are not allowed."""
    for node in program.nodes:
        for item in getattr(node, "decorator_list", []):
            function = head(item)
            plain = isinstance(function, ast.Name) and function.id in _PLAIN_DECORATORS
            paths = program.paths(function)
            is_allowed = bool(paths) and paths <= DECORATORS | OPERATORS
            is_allowed = is_allowed or (plain and program.is_builtin(function)) or program.registers(function)
            if not is_allowed and not _is_wraps(program, node, item) and not _is_own(program, node, function):
                reason = next(filter(None, map(refusal, sorted(paths))), "")
                yield at(item, "decorator", reason or f"decorator {ast.unparse(function)[:60]} is not allowed")


def _is_wraps(program: ParsedSource, decorated: ast.AST, decorator: ast.AST) -> bool:
    """Whether a decorator is `functools.wraps(f)` on no kernel: other arguments name attributes that it would copy."""
    if not isinstance(decorator, ast.Call) or program.paths(decorator.func) != {"functools.wraps"}:
        return False
    if not isinstance(decorated, ast.FunctionDef) or program.is_jit(decorated):
        return False
    return len(decorator.args) == 1 and not decorator.keywords and not isinstance(decorator.args[0], ast.Starred)


def _is_own(program: ParsedSource, decorated: ast.AST, decorator: ast.AST) -> bool:
    """Whether a decorator is a function of the text, on a function that is neither a kernel nor remembered."""
    if not isinstance(decorated, ast.FunctionDef) or program.is_jit(decorated) or not isinstance(decorator, ast.Name):
        return False
    key, values = program.key(decorator.id, decorator), program.values(decorator.id, decorator)
    paths = set().union(*(program.paths(head(item)) for item in decorated.decorator_list))
    plain = bool(values) and all(isinstance(item, ast.FunctionDef) and not program.is_jit(item) for item in values)
    return plain and program.stores[key] == 0 and key not in program.parameters and not paths & _MEANT_AS_WRITTEN


_MEANT_AS_WRITTEN = frozenset(
    "functools.lru_cache functools.cache functools.cached_property triton.autotune triton.heuristics "
    "triton.constexpr_function".split()
)
"""Decorators whose rules read the function that they decorate, so nothing may stand between."""


def wrappers(program: ParsedSource) -> Iterator[Violation]:
    """Yield uses of `functools.wraps` other than as a decorator."""
    pairs = [(node, item) for node in program.every(ast.FunctionDef) for item in node.decorator_list]
    used = {id(head(item)) for node, item in pairs if _is_wraps(program, node, item)}
    for node in program.every(ast.Name, ast.Attribute) if program.uses("functools.wraps") else []:
        if "functools.wraps" in program.paths(node) and isinstance(node.ctx, ast.Load) and id(node) not in used:
            yield at(node, "decorator", "functools.wraps is for decorators only: @functools.wraps(function)")


def wrapped_kernels(program: ParsedSource) -> Iterator[Violation]:
    """Yield uses of `wrap_triton` other than around the kernel of a launch."""
    for node in program.every(ast.Name, ast.Attribute):
        if "torch.library.wrap_triton" in program.paths(node) and not _is_launched(program, node):
            yield at(node, "launch", "wrap_triton is for launches only: wrap_triton(kernel)[grid](...)")


def _is_launched(program: ParsedSource, function: ast.AST) -> bool:
    """Whether an expression is called, indexed and called again."""
    call = program.parents[id(function)]
    index = program.parents[id(call)] if isinstance(call, ast.Call) and call.func is function else None
    launch = program.parents[id(index)] if isinstance(index, ast.Subscript) and index.value is call else None
    return isinstance(launch, ast.Call) and launch.func is index


def entry_class(program: ParsedSource) -> Iterator[Violation]:
    """Yield a violation unless the judged class exists exactly once."""
    classes = [node for node in program.tree.body if isinstance(node, ast.ClassDef) and node.name == program.entry]
    if not classes:
        yield Violation("entry", 1, f"class {program.entry} is missing")
    for node in classes[1:]:
        yield at(node, "entry", f"class {program.entry} is defined twice")
    for name in program.every(ast.Name):
        if name.id == program.entry and isinstance(name.ctx, ast.Store):
            yield at(name, "entry", f"{program.entry} must be a class and stay one")


_NUMBERS = frozenset(
    "min max int len abs range sum float bool round isinstance sorted list tuple dict any all zip "
    "enumerate set str".split()
)
_NUMBER_PATHS = frozenset(
    "triton.cdiv triton.next_power_of_2 triton.Config torch.numel torch.cuda.get_device_capability "
    "torch.cuda.get_device_properties torch.cuda.get_device_name torch.cuda.current_device torch.cuda.is_available "
    "torch.cuda.device_count torch.get_float32_matmul_precision".split()
)
_NUMBER_METHODS = frozenset(
    "numel size stride dim get items keys values element_size bit_length is_contiguous all_kwargs".split()
)
_LIST_METHODS = frozenset(("append", "extend"))
_HOOKS = frozenset(("pre_hook", "post_hook"))
_RESETS = frozenset(("zero_", "fill_"))
_CALLABLE_MODULES = ("operator.", "numpy.", "collections.", "functools.", "itertools.", "os.", "warnings.", "enum.")
_IMPLICIT = ("__getitem__", "__len__", "__iter__", "__repr__", "__str__")
"""Methods that Python calls implicitly."""
_DEFINITION = re.compile(r"^def\s+\w+\s*\(", re.MULTILINE)
_TUNERS = frozenset(("triton.autotune", "triton.Config", "triton.heuristics"))


def kernels(program: ParsedSource) -> Iterator[Violation]:
    """Yield kernels whose text Triton would not find where the gate has read it."""
    for node in program.every(ast.FunctionDef):
        if program.is_jit(node) and not _text_starts_at_def(program, node):
            yield at(node, "kernel", f"Triton would not find the text of {node.name}: write its decorators plainly")


def _text_starts_at_def(program: ParsedSource, function: ast.FunctionDef) -> bool:
    """Whether Triton finds a kernel's `def`: it takes the first line, decorators included, that looks like one."""
    first = min([function.lineno, *(item.lineno for item in function.decorator_list)])
    last = function.lineno if function.col_offset == 0 else function.end_lineno or function.lineno
    text = textwrap.dedent("\n".join(program.lines[first - 1 : last]))
    definition = _DEFINITION.search(text)
    at_sign = not function.decorator_list or program.lines[first - 1].lstrip().startswith("@")
    return at_sign and definition is not None and text.count("\n", 0, definition.start()) == function.lineno - first


def launches(program: ParsedSource) -> Iterator[Violation]:
    """Yield work other than computing integers in callables passed to launches and tuners."""
    handed = {may_reset: _Handed(program, may_reset) for may_reset in (False, True)}
    for node in program.every(ast.Subscript, ast.Call):
        for value, may_reset in _values_handed(program, node):
            handed[may_reset].add(value)
        if isinstance(node, ast.Call) and program.paths(node.func) & _TUNERS:
            for keyword in node.keywords:
                if keyword.arg == "do_bench" or (keyword.arg is None and not _is_constant(program, keyword.value)):
                    yield at(node, "launch", f"{keyword.arg or '**'} is not allowed here: write the arguments out")
    for work in handed.values():
        yield from work.violations()


def _is_constant(program: ParsedSource, value: ast.expr) -> bool:
    """Whether `value` is a dictionary of constants, a choice of two, or a name for it, used as `**name`."""
    if isinstance(value, ast.IfExp):
        return _is_constant(program, value.body) and _is_constant(program, value.orelse)
    if isinstance(value, ast.Dict):
        return all(isinstance(item, ast.Constant) for item in (*value.keys, *value.values))
    if not isinstance(value, ast.Name):
        return False
    return program.once("constant", program.key(value.id, value), lambda: _is_constant_name(program, value))


def _is_constant_name(program: ParsedSource, name: ast.Name) -> bool:
    values, uses = program.values(name.id, name), program.occurrences(name)
    if len(values) != 1 or not isinstance(values[0], ast.Dict | ast.IfExp) or not _is_constant(program, values[0]):
        return False
    if name.id in program.once("bound otherwise", "", lambda: _bound_otherwise(program)):
        return False
    return len(uses) == 1 + sum(_is_unpacked(program, use) for use in uses)


def _is_unpacked(program: ParsedSource, name: ast.Name) -> bool:
    parent = program.parents[id(name)]
    return isinstance(name.ctx, ast.Load) and isinstance(parent, ast.keyword) and parent.arg is None


def _bound_otherwise(program: ParsedSource) -> set[object]:
    """Return the names that imports, patterns, handlers, parameters or `global` may bind."""
    fields = ("name", "asname", "rest", "arg")
    names: set[object] = {getattr(node, field, None) for node in program.nodes for field in fields}
    return names.union(*(getattr(node, "names", ()) for node in program.every(ast.Global, ast.Nonlocal)))


class _Handed:
    """Functions that launches may call, with all functions they refer to; every node is visited once."""

    def __init__(self, program: ParsedSource, may_reset: bool) -> None:
        self._program, self._may_reset = program, may_reset
        self._seen: set[int] = set()
        self._read: set[int] = set()
        self._asked: set[object] = set()
        self._called: set[int] = set()
        self._followed: set[int] = set()
        self._values: list[ast.AST] = []
        self._functions: list[ast.AST] = []

    def add(self, value: ast.AST) -> None:
        """Add an expression passed to a launch: its lambdas, and the functions that it names."""
        self._values.append(value)

    def violations(self) -> Iterator[Violation]:
        """Yield what the functions do other than computing integers."""
        while self._values or self._functions:
            while self._values:
                for node in _walk(self._values.pop(), self._seen):
                    self._take(node)
                    if reason := self._foreign(node):
                        yield at(node, "launch", reason)
            if self._functions:
                yield from self._checked(self._functions.pop())

    def _take(self, node: ast.AST) -> None:
        if isinstance(node, ast.Lambda):
            self._functions.append(node)
        elif isinstance(node, ast.Call):
            self._follow(node.func)
        elif id(node) not in self._called:
            self._refer(node)

    def _follow(self, function: ast.AST) -> None:
        """Follow what a call returns: its own work is done where it is called, where clocks see it."""
        self._called.add(id(function))
        if not isinstance(function, ast.Name | ast.Attribute):
            return
        name = function.id if isinstance(function, ast.Name) else function.attr
        values = self._program.values(name, function) if isinstance(function, ast.Name) else []
        for item in values or self._program.named.get(name, []):
            if id(item) in self._followed:
                continue
            self._followed.add(id(item))
            if isinstance(item, ast.Lambda):
                self._values.append(item.body)
            elif isinstance(item, ast.ClassDef):
                self._functions += self._program.named.get("__call__", [])
            elif isinstance(item, ast.FunctionDef) and not self._program.is_jit(item):
                returns = (part for statement in item.body for part in ast.walk(statement))
                self._values += [
                    part.value for part in returns if isinstance(part, ast.Return) and part.value is not None
                ]

    def _foreign(self, node: ast.AST) -> str:
        """Return a reason if another module's function itself is passed: the rules could not see its call."""
        if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
            return ""
        parent = self._program.parents[id(node)]
        if isinstance(parent, ast.Attribute) or (isinstance(parent, ast.Call) and parent.func is node):
            return ""
        if isinstance(parent, ast.Call) and self._program.paths(parent.func) == {"functools.reduce"}:
            return ""  # it is called there and then
        handed = sorted(path for path in self._program.paths(node) if path.startswith(_CALLABLE_MODULES))
        return (
            f"{handed[0]} is handed to a launch: write a function"
            if handed and handed[0] not in NUMPY_CONSTANTS
            else ""
        )

    def _checked(self, function: ast.AST) -> Iterator[Violation]:
        for name in () if "implicit" in self._asked else _IMPLICIT:
            self._functions += self._program.named.get(name, [])
        self._asked.add("implicit")
        body = [function.body] if isinstance(function, ast.Lambda) else getattr(function, "body", [])
        for statement in body:
            for node in _walk(statement, self._read):
                self._refer(node)
                if reason := _computes(self._program, node, self._may_reset):
                    yield at(node, "launch", f"{reason} in a callable handed to a launch: compute integers only")

    def _refer(self, node: ast.AST) -> None:
        """Follow a name or an attribute to the functions of the text that it may mean."""
        program = self._program
        if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
            return
        about: object = program.key(node.id, node) if isinstance(node, ast.Name) else node.attr
        if about in self._asked:
            return
        self._asked.add(about)
        named = [] if isinstance(node, ast.Name) else [*program.named.get(node.attr, []), *_kept(program, node.attr)]
        for item in program.values(node.id, node) if isinstance(node, ast.Name) else named:
            if isinstance(item, FUNCTIONS) and not program.is_jit(item):
                self._functions.append(item)
                self._values += getattr(item, "decorator_list", [])
            elif isinstance(item, ast.Dict | ast.List | ast.Tuple):
                self._functions += [inner for inner in _walk(item, self._seen) if isinstance(inner, ast.Lambda)]
            elif isinstance(item, ast.Call) and "functools.partial" in program.paths(item.func):
                self._values += item.args
            elif isinstance(item, ast.Call):
                self._follow(item.func)


def _kept(program: ParsedSource, attribute: str) -> list[ast.AST]:
    """Return the functions that assignments keep under an attribute of this name."""
    kept_values = program.once("kept", "", lambda: _all_kept(program))
    return kept_values.get(attribute, [])


def _all_kept(program: ParsedSource) -> dict[str, list[ast.AST]]:
    functions_of: dict[str, list[ast.AST]] = {}
    for node in program.every(ast.Assign):
        values = program.values(node.value.id, node.value) if isinstance(node.value, ast.Name) else [node.value]
        functions = [item for item in values if isinstance(item, FUNCTIONS)]
        for target in node.targets if functions else []:
            if isinstance(target, ast.Attribute):
                functions_of.setdefault(target.attr, []).extend(functions)
    return functions_of


def _walk(node: ast.AST, visited: set[int]) -> Iterator[ast.AST]:
    """Yield a node and its descendants that have not been seen."""
    waiting = [node]
    for item in waiting:  # the loop appends to the list
        if id(item) not in visited:
            visited.add(id(item))
            waiting.extend(child for child in ast.iter_child_nodes(item) if hasattr(child, "_fields"))
            yield item


def _values_handed(program: ParsedSource, node: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    if isinstance(node, ast.Subscript):  # a launch, direct or later as in `run = kernel[grid]`
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
    elif "triton.set_allocator" not in paths and (
        isinstance(node.func, ast.Attribute) or (isinstance(node.func, ast.Name) and node.func.id in program.named)
    ):
        yield from ((item, False) for item in node.args if isinstance(item, ast.Lambda))


def _computes(program: ParsedSource, node: ast.AST, may_reset: bool) -> str:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return "a matrix product is not allowed"
    if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
        local = isinstance(node.value, ast.Name) and isinstance(node, ast.Subscript)
        return "" if local or getattr(node, "attr", "") == "block_shape" else "an assignment is not allowed"
    if not isinstance(node, ast.Call):
        return ""
    function, paths = node.func, program.paths(node.func)
    if paths:
        is_number = paths <= _NUMBER_PATHS or all(path.startswith(("math.", "numpy.")) for path in paths)
        return "" if is_number else f"{sorted(paths)[0]} is not allowed"
    if isinstance(function, ast.Name):
        return "" if _is_known(program, function) else f"{function.id} is not allowed"
    if isinstance(function, ast.Attribute):
        return _method(program, function, may_reset)
    return "such a call is not allowed"


def _is_known(program: ParsedSource, name: ast.Name) -> bool:
    """Whether a name is a builtin that computes numbers, or means functions of the text, which are checked too."""
    if program.is_builtin(name):
        return name.id in _NUMBERS
    values, key = program.values(name.id, name), program.key(name.id, name)
    own = program.once("functions", key, lambda: any(isinstance(item, FUNCTIONS) for item in values))
    plain = bool(values) and program.once("plain", key, lambda: all(_is_plain_record(program, item) for item in values))
    return (own or plain) and key not in program.parameters


def _is_plain_record(program: ParsedSource, call: ast.AST) -> bool:
    """Whether a value is a named tuple or a class that holds values and runs no code when it is called."""
    if isinstance(call, ast.Call):
        return program.paths(call.func) == {"collections.namedtuple"}
    if not isinstance(call, ast.ClassDef) or any(program.paths(base) != {"typing.NamedTuple"} for base in call.bases):
        return False
    inner = (node for statement in call.body for node in ast.walk(statement))
    return not any(isinstance(node, ast.Call | ast.Lambda | ast.FunctionDef | ast.ClassDef) for node in inner)


def _method(program: ParsedSource, function: ast.Attribute, may_reset: bool) -> str:
    name = function.attr
    if name in program.named:
        return ""  # a method of the text is checked itself
    if name in _NUMBER_METHODS or (may_reset and name in _RESETS):
        return ""
    if name in _LIST_METHODS and isinstance(function.value, ast.Name):
        at_home = program.key(function.value.id, function)[0].node is program.block(function)
        return "" if at_home else f"{name} on {function.value.id} is not allowed"
    return f".{name}() is not allowed"
