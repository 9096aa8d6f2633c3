# SPDX-License-Identifier: Apache-2.0
"""Rules on the language: imports, builtins, names, statements, classes, decorators."""

from __future__ import annotations

import ast
import builtins as python_builtins
from collections.abc import Iterator

from verl_kernel.env.static_names import Key, Program, head, root
from verl_kernel.env.static_policy import OPEN_MODULES, SETTINGS, SPECIAL_NAMES, refusal
from verl_kernel.env.static_violation import Violation, at

BUILTINS = frozenset(
    "abs all any bool bytes callable chr complex dict divmod enumerate filter float format frozenset getattr hasattr "
    "int isinstance issubclass iter len list map max min next object ord pow print property range repr reversed round "
    "set slice sorted staticmethod classmethod str sum super tuple type zip bin hex oct ascii "
    "ArithmeticError AssertionError AttributeError Exception ImportError IndexError KeyError LookupError "
    "ModuleNotFoundError NotImplementedError OverflowError RuntimeError StopIteration TypeError UserWarning ValueError "
    "Warning ZeroDivisionError DeprecationWarning NotImplemented Ellipsis".split()
)
"""Builtins a candidate may use."""
ALL_BUILTINS = frozenset(vars(python_builtins))
_CLOSED_BUILTINS = ALL_BUILTINS - BUILTINS - SPECIAL_NAMES
_NAMED_WITH_CARE = frozenset("getattr hasattr type super".split())
METHODS = frozenset("__init__ __post_init__ __repr__ __str__ __call__ __len__ __iter__ __getitem__".split())
"""Special methods a candidate may define."""
BASES = frozenset(
    (
        "torch.nn.Module",
        "torch.autograd.Function",
        "torch.autograd.function.Function",
        "typing.NamedTuple",
        "abc.ABC",
        "enum.Enum",
        "enum.IntEnum",
        "enum.Flag",
        "enum.IntFlag",
    )
)
DECORATORS = frozenset(
    "triton.jit triton.autotune triton.heuristics triton.constexpr_function torch.no_grad torch.inference_mode "
    "torch.enable_grad dataclasses.dataclass functools.lru_cache functools.cache functools.cached_property "
    "torch.amp.custom_fwd torch.amp.custom_bwd torch.cuda.amp.custom_fwd torch.cuda.amp.custom_bwd "
    "torch.autograd.function.once_differentiable abc.abstractmethod enum.unique".split()
)
_PLAIN_DECORATORS = frozenset("staticmethod classmethod property".split())
CONTEXTS = frozenset(
    "torch.no_grad torch.inference_mode torch.enable_grad torch.set_grad_enabled torch.device torch.cuda.device "
    "torch.cuda.device_of torch.autocast torch.amp.autocast torch.cuda.amp.autocast "
    "torch.autograd.no_grad torch.autograd.inference_mode torch.autograd.set_grad_enabled".split()
)
_TRY = (ast.Try, getattr(ast, "TryStar", ast.Try))
_FORBIDDEN_STATEMENTS: tuple[tuple[type[ast.AST] | tuple[type[ast.AST], ...], str, str], ...] = (
    (ast.Global, "global", "`global` is not allowed: keep state on self"),
    (ast.Nonlocal, "nonlocal", "`nonlocal` is not allowed: return values instead"),
    ((ast.Yield, ast.YieldFrom), "generator", "`yield` is not allowed: return a list"),
    ((ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith), "async", "async code is not allowed"),
)


def imports(program: Program) -> Iterator[Violation]:
    """Only open modules are imported, by name."""
    for node in program.nodes:
        if isinstance(node, ast.Import):
            for item in node.names:
                if item.name not in OPEN_MODULES:
                    yield at(node, "import", f"import of {item.name} is not allowed")
        elif isinstance(node, ast.ImportFrom):
            yield from _imports_from(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            for item in node.names:
                if is_special(item.asname or ""):
                    yield at(node, "import", f"import as {item.asname} is not allowed")


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


def rebound(program: Program) -> Iterator[Violation]:
    """An imported name stands for what was imported, so that the other rules read it right."""
    imported = {program.key(name, node) for node in program.nodes if _imports(node) for name in _bound_names(node)}
    for node in program.nodes:
        if _imports(node) or _sets_constant(program.parents.get(id(node), node)):
            continue
        for name in _bound_names(node):
            if program.key(name, node) in imported:
                yield at(node, "import", f"{name} is imported: give the other thing another name")


def _leads_to_open(module: str) -> bool:
    return any(f"{known}.".startswith(f"{module}.") for known in OPEN_MODULES) if module else False


def builtins(program: Program) -> Iterator[Violation]:
    """Only harmless builtins are used; locals of the same name are fine."""
    for node in program.every(ast.Name):
        if node.id in _CLOSED_BUILTINS and isinstance(node.ctx, ast.Load):
            if program.may_be_builtin(node):
                yield at(node, "builtin", f"{node.id} is not allowed")


def unbound(program: Program) -> Iterator[Violation]:
    """Every name that is read is bound by the text itself, or a builtin."""
    first = _first_bindings(program)
    for node in program.every(ast.Name):
        if not isinstance(node.ctx, ast.Load) or not program.is_evaluated(node):
            continue
        if node.id in ALL_BUILTINS or node.id in SPECIAL_NAMES or not program.may_be_builtin(node):
            continue
        here, place = program.key(node.id, node), (node.lineno, node.col_offset)
        in_class = here[0].is_class and first.get(here, _NEVER) <= place
        latest = _EVER if program.in_function(node) else place
        if not in_class and first.get((program.module, here[1]), _NEVER) > latest:
            yield at(node, "unbound", f"{node.id} is bound nowhere before it is used")


_EVER, _NEVER = (1 << 60, 0), (1 << 61, 0)


def _first_bindings(program: Program) -> dict[Key, tuple[int, int]]:
    """The place from which on each name is bound: behind the value or the definition that it stands for."""
    first: dict[Key, tuple[int, int]] = {}
    for node in program.nodes:
        for name in _bound_names(node):
            parent = program.parents[id(node)]
            if isinstance(parent, ast.AnnAssign) and parent.value is None:
                continue
            whole = _bound_with(program, node) if isinstance(node, ast.Name) else node
            end = (getattr(whole, "end_lineno", 0), getattr(whole, "end_col_offset", 0))
            key = program.key(name, node)
            first[key] = min(end, first.get(key, end))
    return first


def _bound_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Name):
        return [node.id] if isinstance(node.ctx, ast.Store) else []
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(item.asname or item.name).partition(".")[0] for item in node.names if item.name != "*"]
    name = getattr(node, "rest", None) if isinstance(node, ast.MatchMapping) else getattr(node, "name", None)
    return [name] if isinstance(name, str) and not isinstance(node, ast.alias) else []


def _bound_with(program: Program, name: ast.Name) -> ast.AST:
    """The assignment, or the iterable of a loop, that is evaluated before a name is bound."""
    node: ast.AST = name
    while isinstance(node, ast.Name | ast.Tuple | ast.List | ast.Starred):
        node = program.parents[id(node)]
    if isinstance(node, ast.For):
        return node.iter
    return node if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr) else name


def calls(program: Program) -> Iterator[Violation]:
    """`type` has one argument, `super` is called for a method, `getattr` names what it reads."""
    for node in program.every(ast.Name):
        if node.id not in _NAMED_WITH_CARE or not isinstance(node.ctx, ast.Load) or not program.may_be_builtin(node):
            continue
        parent = program.parents[id(node)]
        call = parent if isinstance(parent, ast.Call) and parent.func is node else None
        if node.id in ("getattr", "hasattr") and (call is None or not _reads_openly(program, call)):
            yield at(node, "getattr", f"{node.id} needs a constant name of an ordinary attribute")
        elif node.id == "type" and (call is None or len(call.args) != 1 or call.keywords):
            yield at(node, "builtin", "type needs one argument")
        elif node.id == "super" and (call is None or not isinstance(program.parents[id(call)], ast.Attribute)):
            yield at(node, "builtin", "super must be called for a method, as in super().__init__()")


def _reads_openly(program: Program, call: ast.Call) -> bool:
    name = call.args[1] if len(call.args) > 1 else None
    if not isinstance(name, ast.Constant) or not isinstance(name.value, str) or name.value.startswith("_"):
        return False
    return not any(refusal(f"{path}.{name.value}") for path in program.paths(call.args[0]))


def names(program: Program) -> Iterator[Violation]:
    """Names of the language's machinery (`__builtins__`, `__loader__`) stay unused."""
    for node in program.every(ast.Name):
        if is_special(node.id):
            if node.id not in SPECIAL_NAMES or (node.id == "__name__" and not isinstance(node.ctx, ast.Load)):
                yield at(node, "name", f"{node.id} is not allowed")


def is_special(name: str) -> bool:
    """Whether a name belongs to the language's machinery."""
    return name.startswith("__") and name.endswith("__")


def statements(program: Program) -> Iterator[Violation]:
    """No statement that hides state, control flow or failure."""
    for node in program.nodes:
        for kinds, rule, reason in _FORBIDDEN_STATEMENTS:
            if isinstance(node, kinds):
                yield at(node, rule, reason)
        if isinstance(node, _TRY) and not _tries_imports(node):
            yield at(node, "try", "try is not allowed: let errors surface")
        elif isinstance(node, ast.Delete) and not all(_is_local(program, target) for target in node.targets):
            yield at(node, "del", "del is allowed for local variables only")
        elif isinstance(node, ast.With):
            yield from _contexts(program, node)


def _tries_imports(node: ast.AST) -> bool:
    """`try: import a` / `except ImportError: import b` hides no failure of a kernel."""
    if not isinstance(node, ast.Try) or node.finalbody or node.orelse or not any(map(_imports, node.body)):
        return False
    bodies = [*node.body, *(item for handler in node.handlers for item in handler.body)]
    return all(_imports(item) or isinstance(item, ast.Pass) or _sets_constant(item) for item in bodies)


def _imports(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _sets_constant(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)


def _is_local(program: Program, target: ast.AST) -> bool:
    return isinstance(target, ast.Name) and not program.is_global(target.id, target)


def _contexts(program: Program, node: ast.With) -> Iterator[Violation]:
    for item in node.items:
        paths = program.paths(head(item.context_expr))
        if not paths or not all(path in CONTEXTS or path.startswith("triton.language.") for path in paths):
            yield at(item.context_expr, "with", "`with` is allowed for torch.no_grad, autocast and devices only")


def assignments(program: Program) -> Iterator[Violation]:
    """Nothing that was imported is changed, and functions change no module-level name."""
    for node in program.every(ast.Attribute, ast.Subscript):
        if not isinstance(node.ctx, ast.Load):
            paths = program.paths(node.value)
            target = {f"{path}.{node.attr}" for path in paths} if isinstance(node, ast.Attribute) else paths
            if paths and not target <= SETTINGS:
                yield at(node, "assignment", f"{sorted(paths)[0]} must not be changed")
            elif not paths and (reason := _foreign_store(program, node)):
                yield at(node, "assignment", reason)


def _foreign_store(program: Program, node: ast.Attribute | ast.Subscript) -> str:
    base = root(node)
    if not isinstance(base, ast.Name):
        return "assign to attributes of self only" if isinstance(node, ast.Attribute) else ""
    in_function = program.block(node) is not program.tree
    if in_function and program.is_global(base.id, base):
        return f"{base.id} is state outside the model, which functions must not change: keep state on self"
    if isinstance(node, ast.Attribute) and not _may_store(program, node, base):
        return f"attribute {node.attr} of {base.id} must not be set: assign to attributes of self only"
    return ""


def _may_store(program: Program, node: ast.Attribute, base: ast.Name) -> bool:
    """On self or ctx; on what a call has made; `.data`, `.weight` and the like deeper in."""
    if node.value is not base and node.attr not in ("data", "requires_grad", "weight", "bias", "block_shape"):
        return False
    if _is_first_parameter(program, base):
        return True
    return program.once("made", program.key(base.id, base), lambda: _is_made(program, program.values(base.id, base)))


def _is_made(program: Program, values: list[ast.AST]) -> bool:
    """Whether a name stands for what calls have made, and nothing else."""
    return bool(values) and all(isinstance(item, ast.Call) and _makes_objects(program, item.func) for item in values)


def _is_first_parameter(program: Program, name: ast.Name) -> bool:
    scope = program.key(name.id, name)[0]
    if not isinstance(scope.node, ast.FunctionDef) or scope.parent is None or not scope.parent.is_class:
        return False
    arguments = [*scope.node.args.posonlyargs, *scope.node.args.args][:1]
    return bool(arguments) and arguments[0].arg == name.id


def _makes_objects(program: Program, function: ast.AST) -> bool:
    if any(path.startswith("torch.") for path in program.paths(function)):
        return True
    return isinstance(function, ast.Name) and function.id in program.class_names


def decorators(program: Program) -> Iterator[Violation]:
    """Only decorators whose meaning is known."""
    for node in program.nodes:
        for item in getattr(node, "decorator_list", []):
            function = head(item)
            plain = isinstance(function, ast.Name) and function.id in _PLAIN_DECORATORS
            paths = program.paths(function)
            if not (plain and program.is_builtin(function)) and not (paths and paths <= DECORATORS):
                yield at(item, "decorator", f"decorator {ast.unparse(function)[:60]} is not allowed")


def entry_class(program: Program) -> Iterator[Violation]:
    """The class that is to be judged exists, once."""
    found = [node for node in program.tree.body if isinstance(node, ast.ClassDef) and node.name == program.entry]
    if not found:
        yield Violation("entry", 1, f"class {program.entry} is missing")
    for node in found[1:]:
        yield at(node, "entry", f"class {program.entry} is defined twice")
    for name in program.every(ast.Name):
        if name.id == program.entry and isinstance(name.ctx, ast.Store):
            yield at(name, "entry", f"{program.entry} must be a class and stay one")
