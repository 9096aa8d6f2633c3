# SPDX-License-Identifier: Apache-2.0
"""The static gate: refuses source that no honest kernel needs, before anything runs.

It reads the syntax tree, never the text, so a docstring that mentions `eval` is no reason. Each rule is a function
from a program to violations; `coverage` lets torch compute in `forward` (coverage then pays less), `strict` does not.
The gate is the first layer, not the only one: what it misses runs in a jail and is judged by its output.
"""

from __future__ import annotations

import ast
import symtable
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from verl_kernel.env.static_names import Program

MODULES = frozenset(
    "torch torch.nn torch.nn.functional triton triton.language triton.tools.tensor_descriptor "
    "math typing functools dataclasses __future__".split()
)
"""Modules a candidate may import, with everything under `triton.language.extra`."""
BUILTINS = frozenset("exec eval compile open __import__ globals locals vars setattr delattr breakpoint".split())
"""Builtins a candidate may not use."""
METHODS = frozenset("__init__ __post_init__ __repr__ __str__ __call__ __len__".split())
"""Special methods a candidate may define."""
BASES = frozenset(("torch.nn.Module", "torch.nn.modules.module.Module"))
SPECIAL_NAMES = frozenset("__name__ __doc__ __all__".split())
SPECIAL_ATTRIBUTES = frozenset("__init__ __name__ __version__".split())
_OPEN_CUDA = (
    "is_available device_count current_device get_device_name get_device_properties get_device_capability "
    "synchronize device current_stream is_bf16_supported empty_cache Event"
).split()
OPEN_PATHS = frozenset(
    (*(f"torch.cuda.{name}" for name in _OPEN_CUDA), "triton.runtime.driver", "triton.tools.tensor_descriptor")
)
"""Exceptions to `CLOSED_PATHS`."""
_CLOSED_TORCH = (
    "cuda ops classes compile jit load save hub package multiprocessing distributed utils library export fx futures "
    "overrides serialization storage testing profiler monitor onnx from_file"
).split()
_CLOSED_TRITON = "runtime compiler backends knobs tools profiler".split()
CLOSED_PATHS = frozenset((*(f"torch.{name}" for name in _CLOSED_TORCH), *(f"triton.{name}" for name in _CLOSED_TRITON)))
"""Parts of torch and triton that reach beyond tensors and kernels."""
_WAYS = frozenset(path.rpartition(".")[0] for path in OPEN_PATHS)
SETTINGS = ("torch.backends.",)
"""What may be assigned to in imported modules."""
_TRY = (ast.Try, getattr(ast, "TryStar", ast.Try))
_ALLOCATION = (
    "empty empty_like empty_strided zeros zeros_like ones ones_like full full_like tensor device Size dtype "
    "arange is_tensor is_floating_point finfo iinfo no_grad inference_mode promote_types result_type broadcast_shapes"
).split()
_MOVEMENT = (
    "view reshape contiguous size stride dim numel data_ptr to type float half double int long bool transpose permute "
    "t unsqueeze squeeze expand expand_as flatten unflatten clone detach item is_contiguous element_size "
    "storage_offset new_empty new_zeros new_ones new_full copy_ zero_ fill_ cuda cpu chunk split unbind select narrow "
    "as_strided movedim swapaxes ndimension nelement is_floating_point requires_grad_ get_device tolist "
    "untyped_storage view_as"
).split()
_COMPUTING_METHODS = frozenset(name for name in dir(torch.Tensor) if not name.startswith("_")) - frozenset(_MOVEMENT)


@dataclass(frozen=True)
class Violation:
    """One reason to refuse a source text."""

    rule: str
    line: int
    reason: str


Rule = Callable[[Program], Iterator[Violation]]


def check(source: str, mode: str = "coverage", entry: str = "ModelNew") -> list[Violation]:
    """Violations of a candidate's source, in the order of its lines.

    Args:
        source: any text at all.
        mode: `strict`, `coverage` or `off` (nothing is checked).
        entry: class the candidate must define.

    Returns:
        An empty list for source that may run.

    Raises:
        ValueError: an unknown mode.
    """
    if mode not in ("strict", "coverage", "off"):
        raise ValueError(f"static check mode {mode!r} is unknown: use strict, coverage or off")
    if mode == "off":
        return []
    rules = STRICT_RULES if mode == "strict" else RULES
    try:
        program = Program(source, _parse(source), entry)
        found = {(item.rule, item.line): item for rule in rules for item in rule(program)}
        return sorted(found.values(), key=lambda item: item.line)
    except SyntaxError as exc:
        return [Violation("syntax", exc.lineno or 1, f"not valid Python: {exc.msg}")]
    except (ValueError, RecursionError, MemoryError, OverflowError) as exc:
        return [Violation("syntax", 1, f"not readable as Python: {exc or type(exc).__name__}")]


def _parse(source: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a candidate's odd escapes are not our output
        return ast.parse(source)


def imports(program: Program) -> Iterator[Violation]:
    """Only whitelisted modules are imported, by name."""
    for node in program.nodes:
        if isinstance(node, ast.Import):
            for item in node.names:
                if not _may_import(item.name):
                    yield Violation("import", node.lineno, f"import of {item.name} is not allowed")
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level or not (_may_import(module) or all(_may_import(f"{module}.{i.name}") for i in node.names)):
                yield Violation("import", node.lineno, f"import from {'.' * node.level}{module} is not allowed")
            for item in node.names:
                if item.name == "*" or _is_closed_path(f"{module}.{item.name}"):
                    yield Violation("import", node.lineno, f"import of {module}.{item.name} is not allowed")


def _may_import(module: str) -> bool:
    return module in MODULES or f"{module}.".startswith("triton.language.extra.")


def builtins(program: Program) -> Iterator[Violation]:
    """Builtins that run text, open files or rewrite namespaces stay unused; locals of the same name are fine."""
    lines = {node.id: node.lineno for node in reversed(program.nodes) if isinstance(node, ast.Name)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tables = [symtable.symtable(program.source, "candidate", "exec")]
    for table in tables:  # grows while it is walked
        tables.extend(table.get_children())
        for symbol in table.get_symbols():
            local = table.get_type() == "function" and not symbol.is_global()
            if symbol.get_name() in BUILTINS and symbol.is_referenced() and not local:
                yield Violation("builtin", lines.get(symbol.get_name(), 1), f"{symbol.get_name()} is not allowed")


def names(program: Program) -> Iterator[Violation]:
    """Names of the language's machinery (`__builtins__`, `__loader__`) stay unused."""
    for node in program.nodes:
        if isinstance(node, ast.Name) and _is_special(node.id) and node.id not in SPECIAL_NAMES | BUILTINS:
            yield Violation("name", node.lineno, f"{node.id} is not allowed")


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def getattrs(program: Program) -> Iterator[Violation]:
    """`getattr` and `hasattr` are called with a constant, ordinary name, so that the other rules can read it."""
    called = {id(node.func): node for node in program.nodes if isinstance(node, ast.Call)}
    for node in program.nodes:
        if isinstance(node, ast.Name) and node.id in ("getattr", "hasattr"):
            call = called.get(id(node))
            if call is None or not _reads_openly(program, call):
                yield Violation("getattr", node.lineno, f"{node.id} needs a constant name of an ordinary attribute")


def _reads_openly(program: Program, call: ast.Call) -> bool:
    name = call.args[1] if len(call.args) > 1 else None
    if not isinstance(name, ast.Constant) or not isinstance(name.value, str) or name.value.startswith("_"):
        return False
    return not any(_is_closed_path(f"{path}.{name.value}") for path in program.paths(call.args[0]))


def attributes(program: Program) -> Iterator[Violation]:
    """No special attributes, and of torch and triton only what kernels need."""
    for node in program.nodes:
        if isinstance(node, ast.Attribute) and _is_special(node.attr) and node.attr not in SPECIAL_ATTRIBUTES:
            yield Violation("attribute", node.lineno, f"attribute {node.attr} is not allowed")
        if isinstance(node, ast.Attribute | ast.Name):
            for path in program.paths(node):
                if _is_closed_path(path):
                    yield Violation("attribute", node.lineno, f"{path} is not allowed")


def _is_closed_path(path: str) -> bool:
    parts = path.split(".")
    heads = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
    private = parts[0] in ("torch", "triton") and any(
        part.startswith("_") and part not in SPECIAL_ATTRIBUTES for part in parts[1:]
    )
    return private or (bool(heads & CLOSED_PATHS) and not heads & OPEN_PATHS and path not in _WAYS)


def assignments(program: Program) -> Iterator[Violation]:
    """Nothing that was imported is changed."""
    for node in program.nodes:
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            paths = program.paths(node.value)
            if not all(f"{path}.".startswith(SETTINGS) for path in paths):
                yield Violation("assignment", node.lineno, f"{sorted(paths)[0]} must not be changed")


def handlers(program: Program) -> Iterator[Violation]:
    """No `try`: a kernel that fails must be seen to fail."""
    for node in program.nodes:
        if isinstance(node, _TRY):
            yield Violation("try", node.lineno, "try is not allowed: let errors surface")


def classes(program: Program) -> Iterator[Violation]:
    """Classes inherit from nn.Module or nothing, and define no hooks of the language."""
    for node in program.nodes:
        if not isinstance(node, ast.ClassDef):
            continue
        for base in node.bases:
            plain = isinstance(base, ast.Name) and base.id == "object"
            if not (plain or program.paths(base) & BASES):
                yield Violation("base", node.lineno, f"class {node.name} may only inherit from torch.nn.Module")
        if node.keywords:
            yield Violation("base", node.lineno, f"class {node.name} must not have class keywords")
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and _is_special(item.name) and item.name not in METHODS:
                yield Violation("method", item.lineno, f"class {node.name} must not define {item.name}")


def entry_class(program: Program) -> Iterator[Violation]:
    """The class that is to be judged exists."""
    if not any(isinstance(node, ast.ClassDef) and node.name == program.entry for node in program.tree.body):
        yield Violation("entry", 1, f"class {program.entry} is missing")


def torch_compute(program: Program) -> Iterator[Violation]:
    """Strict mode: host code allocates and launches, kernels compute."""
    modules = _torch_modules(program)
    for function in _host_functions(program):
        for node in ast.walk(function):
            if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
                yield Violation("torch", node.lineno, "matrix product in host code: strict mode wants it in a kernel")
            elif isinstance(node, ast.Call) and (name := _computes(program, node, modules)):
                yield Violation("torch", node.lineno, f"{name} computes in host code: strict mode wants it in a kernel")


def _host_functions(program: Program) -> list[ast.AST]:
    functions = [node for node in program.nodes if isinstance(node, ast.FunctionDef)]
    setup = ("__init__", "get_inputs", "get_init_inputs")
    return [function for function in functions if not program.is_jit(function) and function.name not in setup]


def _torch_modules(program: Program) -> set[str]:
    """Attributes of self that hold torch modules (`self.norm = nn.LayerNorm(d)`)."""
    return {
        target.attr
        for node in program.nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Attribute)
        and any(path.startswith("torch.nn.") and "Parameter" not in path for path in program.paths(node.value.func))
    }


def _computes(program: Program, call: ast.Call, modules: set[str]) -> str:
    paths = program.paths(call.func)
    for path in sorted(paths):
        if path.startswith("torch.nn.functional.") or (path.startswith("torch.") and path.count(".") == 1):
            if path.rpartition(".")[2] not in _ALLOCATION:
                return path
    if paths or not isinstance(call.func, ast.Attribute):
        return ""
    if isinstance(call.func.value, ast.Name) and call.func.value.id == "self":
        return f"self.{call.func.attr}" if call.func.attr in modules else ""
    return f".{call.func.attr}()" if call.func.attr in _COMPUTING_METHODS else ""


RULES: tuple[Rule, ...] = (
    imports,
    builtins,
    names,
    getattrs,
    attributes,
    assignments,
    handlers,
    classes,
    entry_class,
)
STRICT_RULES: tuple[Rule, ...] = (*RULES, torch_compute)
