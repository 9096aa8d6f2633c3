# SPDX-License-Identifier: Apache-2.0
"""Rules on names: which builtins and special names may be used, and that each name is bound before it is read."""

from __future__ import annotations

import ast
import builtins as python_builtins
from collections.abc import Iterator

from verl_kernel.env.static_check.allowlist import OPEN_MODULES, SPECIAL_NAMES, refusal
from verl_kernel.env.static_check.names import (
    ParsedSource,
    Violation,
    at,
    bound_names,
    is_import,
    is_special,
    sets_constant,
)
from verl_kernel.env.static_check.optional_packages import is_known, looked_for, optional_imports
from verl_kernel.env.static_check.scopes import Key

BUILTINS = frozenset(
    "abs all any bool bytes callable chr complex dict divmod enumerate filter float format frozenset getattr hasattr "
    "int isinstance issubclass iter len list map max min next object ord pow print property range repr reversed round "
    "set setattr slice sorted staticmethod classmethod str sum super tuple type zip bin hex oct ascii "
    "ArithmeticError AssertionError AttributeError Exception ImportError IndexError KeyError LookupError "
    "ModuleNotFoundError NotImplementedError OverflowError RuntimeError StopIteration TypeError UserWarning ValueError "
    "Warning ZeroDivisionError DeprecationWarning NotImplemented Ellipsis".split()
)
"""Builtins that a candidate may use."""
ALL_BUILTINS = frozenset(vars(python_builtins))
_CLOSED_BUILTINS = ALL_BUILTINS - BUILTINS - SPECIAL_NAMES
_NAMED_WITH_CARE = frozenset("type super".split())
_EVER, _NEVER = (1 << 60, 0), (1 << 61, 0)


def builtins(program: ParsedSource) -> Iterator[Violation]:
    """Yield uses of builtins that are not allowed; locals of the same name are fine."""
    for node in program.every(ast.Name):
        if node.id in _CLOSED_BUILTINS and isinstance(node.ctx, ast.Load) and program.may_be_builtin(node):
            yield at(node, "builtin", f"{node.id} is not allowed")


def unbound(program: ParsedSource) -> Iterator[Violation]:
    """Yield reads of names that are neither bound by the text before nor builtins."""
    first = _first_bindings(program)
    for node in program.every(ast.Name):
        if not isinstance(node.ctx, ast.Load) or not program.is_evaluated(node):
            continue
        if node.id in ALL_BUILTINS or node.id in SPECIAL_NAMES or not program.may_be_builtin(node):
            continue
        here, position = program.key(node.id, node), (node.lineno, node.col_offset)
        in_class = here[0].is_class and first.get(here, _NEVER) <= position
        latest = _EVER if program.in_function(node) else position
        if not in_class and first.get((program.module, here[1]), _NEVER) > latest:
            yield at(node, "unbound", f"{node.id} is bound nowhere before it is used")


def _first_bindings(program: ParsedSource) -> dict[Key, tuple[int, int]]:
    """Return the place from which on each name is bound: the end of its value or definition."""
    first: dict[Key, tuple[int, int]] = {}
    for node in program.nodes:
        for name in bound_names(node):
            parent = program.parents[id(node)]
            if isinstance(parent, ast.AnnAssign) and parent.value is None:
                continue
            whole = _bound_with(program, node) if isinstance(node, ast.Name) else node
            edge = "" if isinstance(node, ast.ExceptHandler) else "end_"  # its body reads the exception
            end = (getattr(whole, f"{edge}lineno", 0), getattr(whole, f"{edge}col_offset", 0))
            key = program.key(name, node)
            first[key] = min(end, first.get(key, end))
    return first


def _bound_with(program: ParsedSource, name: ast.Name) -> ast.AST:
    """Return the assignment, or the iterable of a loop, that is evaluated before a name is bound."""
    node: ast.AST = name
    while isinstance(node, ast.Name | ast.Tuple | ast.List | ast.Starred):
        node = program.parents[id(node)]
    if isinstance(node, ast.For):
        return node.iter
    return node if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr) else name


def calls(program: ParsedSource) -> Iterator[Violation]:
    """Yield uses of `type` without one argument, and of `super` without a method."""
    for node in program.every(ast.Name):
        if node.id not in _NAMED_WITH_CARE or not isinstance(node.ctx, ast.Load) or not program.may_be_builtin(node):
            continue
        parent = program.parents[id(node)]
        call = parent if isinstance(parent, ast.Call) and parent.func is node else None
        if node.id == "type" and (call is None or len(call.args) != 1 or call.keywords):
            if not _names_a_kind(program, node):
                yield at(node, "builtin", "type needs one argument")
        elif node.id == "super" and (call is None or not isinstance(program.parents[id(call)], ast.Attribute)):
            yield at(node, "builtin", "super must be called for a method, as in super().__init__()")


def _names_a_kind(program: ParsedSource, node: ast.Name) -> bool:
    """Whether `type` is only asked for, in `isinstance(x, type)`, or stands in the annotation of a function.

    The annotation of a class could be had from its fields.
    """
    parent = program.parents[id(node)]
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id == "isinstance":
        return program.is_builtin(parent.func) and parent.args[1:] == [node]
    return id(node) in program.once("annotations", "", lambda: _annotated(program))


def _annotated(program: ParsedSource) -> set[int]:
    functions = program.every(ast.FunctionDef)
    notes = [item.annotation for item in program.every(ast.arg)] + [item.returns for item in functions]
    return {id(part) for note in notes if note is not None for part in ast.walk(note)}


def names(program: ParsedSource) -> Iterator[Violation]:
    """Yield uses of the language's internal names (`__builtins__`, `__loader__`)."""
    for node in program.every(ast.Name):
        is_read = node.id in SPECIAL_NAMES and (node.id != "__name__" or isinstance(node.ctx, ast.Load))
        if is_special(node.id) and not is_read:
            yield at(node, "name", f"{node.id} is not allowed")


# Rules on imports: which modules are open, and that an imported name keeps its meaning.


_IDLE = frozenset(
    "argparse contextlib copy datetime gc inspect json pathlib pprint random re string struct sys textwrap time "
    "traceback types unittest uuid".split()
)
"""Modules that people import and do not use; to import them does nothing."""


def imports(program: ParsedSource) -> Iterator[Violation]:
    """Yield imports of modules that are not open, unless their names are never used, and star imports."""
    absent = optional_imports(program.tree)
    used = {node.id for node in program.every(ast.Name)}
    used |= {name for node in program.every(ast.Global, ast.Nonlocal) for name in node.names}
    for node in program.nodes:
        if isinstance(node, ast.Import) and node not in absent:
            for item in node.names:
                is_idle = item.name in _IDLE and item.asname is None and item.name not in used
                if item.name not in OPEN_MODULES and not is_idle:
                    yield at(node, "import", f"import of {item.name} is not allowed")
        elif isinstance(node, ast.ImportFrom) and node not in absent:
            yield from _imports_from(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            for item in node.names:
                if is_special(item.asname or ""):
                    yield at(node, "import", f"import as {item.asname} is not allowed")


_FINDER = "importlib.util.find_spec"


def packages(program: ParsedSource) -> Iterator[Violation]:
    """Yield uses of `find_spec` other than to ask whether one package is there: a spec loads modules."""
    for node in program.every(ast.Name, ast.Attribute) if program.uses(_FINDER) else []:
        if _FINDER in program.paths(node) and not _asks_for_a_package(program, node):
            yield at(node, "import", 'find_spec may only be asked as in find_spec("name") is not None')


def _asks_for_a_package(program: ParsedSource, node: ast.AST) -> bool:
    call = program.parents[id(node)]
    name = looked_for(call).partition(".") if isinstance(call, ast.Call) and call.func is node else ("", "", "")
    if not name[0] or (is_known(name[0]) and name[1]):  # it would import the package around it
        return False
    use = program.parents[id(call)]
    if (isinstance(use, ast.If | ast.IfExp) and use.test is call) or (
        isinstance(use, ast.UnaryOp) and isinstance(use.op, ast.Not)
    ):
        return True
    if isinstance(use, ast.Compare):
        return all(isinstance(item, ast.Constant) and item.value is None for item in use.comparators)
    return isinstance(use, ast.Call) and program.is_builtin(use.func) and getattr(use.func, "id", "") == "bool"


def _imports_from(node: ast.ImportFrom) -> Iterator[Violation]:
    module = node.module or ""
    if node.level or not _leads_to_open(module):
        yield at(node, "import", f"import from {'.' * node.level}{module} is not allowed")
        return
    for item in node.names:
        path = f"{module}.{item.name}"
        closed = module not in OPEN_MODULES and path not in OPEN_MODULES
        if item.name == "*" or closed or (reason := refusal(path)):
            yield at(node, "import", f"import of {path} is not allowed" if item.name == "*" or closed else reason)


def _leads_to_open(module: str) -> bool:
    return any(f"{open_module}.".startswith(f"{module}.") for open_module in OPEN_MODULES) if module else False


def rebound(program: ParsedSource) -> Iterator[Violation]:
    """Yield other bindings of an imported name, because the other rules rely on its meaning."""
    imported = {program.key(name, node) for node in program.nodes if is_import(node) for name in bound_names(node)}
    for node in program.nodes:
        if is_import(node) or sets_constant(program.parents.get(id(node), node)):
            continue
        for name in bound_names(node):
            if program.key(name, node) in imported:
                yield at(node, "import", f"{name} is imported: give the other thing another name")


_MAKER = "logging.getLogger"
_SAYS = frozenset("debug info warning error critical isEnabledFor".split())
_REASON = "a logger may be asked for debug, info, warning or error only"


def loggers(program: ParsedSource) -> Iterator[Violation]:
    """Yield uses of `logging.getLogger` other than a direct call whose result only logs messages.

    All other attributes of a logger give access to more: its handlers, other loggers and their factories.
    """
    for node in program.every(ast.Name, ast.Attribute) if program.uses("logging.") else []:
        if _MAKER in program.paths(node) and isinstance(node.ctx, ast.Load):
            call = program.parents[id(node)]
            is_called = isinstance(call, ast.Call) and call.func is node
            if not is_called or not _only_says(program, call):
                yield at(node, "logging", _REASON)


def _only_says(program: ParsedSource, call: ast.AST) -> bool:
    """Whether a logger expression logs directly, or is bound to names of which all uses do."""
    use = program.parents[id(call)]
    if not isinstance(use, ast.Assign):
        return _says(program, call)
    names = [target for target in use.targets if isinstance(target, ast.Name)]
    return len(names) == len(use.targets) and all(_is_only_asked(program, name) for name in names)


def _is_only_asked(program: ParsedSource, name: ast.Name) -> bool:
    uses = program.occurrences(name)
    return program.once(
        "logger", id(uses), lambda: all(_says(program, use) for use in uses if isinstance(use.ctx, ast.Load))
    )


def _says(program: ParsedSource, logger: ast.AST) -> bool:
    use = program.parents[id(logger)]
    call = program.parents.get(id(use))
    is_called = isinstance(call, ast.Call) and call.func is use
    return isinstance(use, ast.Attribute) and use.attr in _SAYS and is_called
