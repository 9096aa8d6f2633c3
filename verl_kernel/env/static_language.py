# SPDX-License-Identifier: Apache-2.0
"""Rules on the language: imports, builtins, names, statements, classes, decorators."""

from __future__ import annotations

import ast
import symtable
import warnings
from collections.abc import Iterator

from verl_kernel.env.static_names import Program, head, root
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
_ALL_BUILTINS = frozenset(dir(__builtins__) if not isinstance(__builtins__, dict) else __builtins__)
METHODS = frozenset("__init__ __post_init__ __repr__ __str__ __call__ __len__ __iter__ __getitem__".split())
"""Special methods a candidate may define."""
BASES = frozenset(
    ("torch.nn.Module", "torch.autograd.Function", "torch.autograd.function.Function", "typing.NamedTuple")
)
DECORATORS = frozenset(
    "triton.jit triton.autotune triton.heuristics triton.constexpr_function torch.no_grad torch.inference_mode "
    "torch.enable_grad dataclasses.dataclass functools.lru_cache functools.cache functools.cached_property "
    "torch.amp.custom_fwd torch.amp.custom_bwd torch.cuda.amp.custom_fwd torch.cuda.amp.custom_bwd "
    "torch.autograd.function.once_differentiable".split()
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


def _leads_to_open(module: str) -> bool:
    return any(f"{known}.".startswith(f"{module}.") for known in OPEN_MODULES) if module else False


def builtins(program: Program) -> Iterator[Violation]:
    """Only harmless builtins are used; locals of the same name are fine."""
    lines = {node.id: node for node in reversed(program.nodes) if isinstance(node, ast.Name)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tables = [symtable.symtable(program.source, "candidate", "exec")]
    used = {node.id for node in program.nodes if isinstance(node, ast.Name)}
    for table in tables:  # grows while it is walked
        tables.extend(table.get_children())
        for symbol in table.get_symbols():
            name = symbol.get_name()
            local = table.get_type() == "function" and not symbol.is_global()
            if (
                name in used
                and name in _ALL_BUILTINS - BUILTINS - SPECIAL_NAMES
                and symbol.is_referenced()
                and not local
            ):
                yield at(lines[name], "builtin", f"{name} is not allowed")


def calls(program: Program) -> Iterator[Violation]:
    """`type` has one argument, `super` is called for a method, `getattr` names what it reads."""
    for node in program.nodes:
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load) or not _is_builtin(program, node):
            continue
        parent = program.parents[id(node)]
        call = parent if isinstance(parent, ast.Call) and parent.func is node else None
        if node.id in ("getattr", "hasattr") and (call is None or not _reads_openly(program, call)):
            yield at(node, "getattr", f"{node.id} needs a constant name of an ordinary attribute")
        elif node.id == "type" and (call is None or len(call.args) != 1 or call.keywords):
            yield at(node, "builtin", "type needs one argument")
        elif node.id == "super" and (call is None or not isinstance(program.parents[id(call)], ast.Attribute)):
            yield at(node, "builtin", "super must be called for a method, as in super().__init__()")


def _is_builtin(program: Program, node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and program.key(node.id, node) not in program.bound


def _reads_openly(program: Program, call: ast.Call) -> bool:
    name = call.args[1] if len(call.args) > 1 else None
    if not isinstance(name, ast.Constant) or not isinstance(name.value, str) or name.value.startswith("_"):
        return False
    return not any(refusal(f"{path}.{name.value}") for path in program.paths(call.args[0]))


def names(program: Program) -> Iterator[Violation]:
    """Names of the language's machinery (`__builtins__`, `__loader__`) stay unused."""
    for node in program.nodes:
        if isinstance(node, ast.Name) and is_special(node.id):
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
    for node in program.nodes:
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
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
    in_function = program.scopes[id(node)] is not program.tree
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
    made = program.values(base.id, base)
    return bool(made) and all(isinstance(value, ast.Call) and _makes_objects(program, value.func) for value in made)


def _is_first_parameter(program: Program, name: ast.Name) -> bool:
    scope = program.scopes[id(name)]
    while isinstance(scope, ast.FunctionDef | ast.Lambda):
        arguments = [*scope.args.posonlyargs, *scope.args.args]
        if any(item.arg == name.id for item in arguments):
            in_class = isinstance(program.parents.get(id(scope)), ast.ClassDef)
            return in_class and arguments[0].arg == name.id
        scope = program.scopes[id(scope)]
    return False


def _makes_objects(program: Program, function: ast.AST) -> bool:
    if any(path.startswith("torch.") for path in program.paths(function)):
        return True
    return isinstance(function, ast.Name) and any(
        isinstance(item, ast.ClassDef) for item in program.named.get(function.id, [])
    )


def decorators(program: Program) -> Iterator[Violation]:
    """Only decorators whose meaning is known."""
    for node in program.nodes:
        for item in getattr(node, "decorator_list", []):
            function = head(item)
            plain = isinstance(function, ast.Name) and function.id in _PLAIN_DECORATORS
            paths = program.paths(function)
            if not (plain and _is_builtin(program, function)) and not (paths and paths <= DECORATORS):
                yield at(item, "decorator", f"decorator {ast.unparse(function)[:60]} is not allowed")


def entry_class(program: Program) -> Iterator[Violation]:
    """The class that is to be judged exists, once."""
    found = [node for node in program.tree.body if isinstance(node, ast.ClassDef) and node.name == program.entry]
    if not found:
        yield Violation("entry", 1, f"class {program.entry} is missing")
    for node in found[1:]:
        yield at(node, "entry", f"class {program.entry} is defined twice")
