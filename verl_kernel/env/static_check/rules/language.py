# SPDX-License-Identifier: Apache-2.0
"""Rules on the language: statements, `with` blocks, decorators, and the class that must be there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from verl_kernel.env.static_check.names import ParsedSource
from verl_kernel.env.static_check.syntax import head, is_import, sets_constant
from verl_kernel.env.static_check.violation import Violation, at

DECORATORS = frozenset(
    "triton.jit triton.autotune triton.heuristics triton.constexpr_function triton.language.constexpr torch.no_grad "
    "torch.inference_mode torch.enable_grad dataclasses.dataclass functools.lru_cache functools.cache "
    "functools.cached_property torch.amp.custom_fwd torch.amp.custom_bwd torch.cuda.amp.custom_fwd "
    "torch.cuda.amp.custom_bwd torch.autograd.function.once_differentiable abc.abstractmethod enum.unique".split()
)
_PLAIN_DECORATORS = frozenset("staticmethod classmethod property".split())
CONTEXTS = frozenset(
    "torch.no_grad torch.inference_mode torch.enable_grad torch.set_grad_enabled torch.device torch.cuda.device "
    "torch.cuda.device_of torch.accelerator.device_index torch.autocast torch.amp.autocast torch.cuda.amp.autocast "
    "torch.autograd.no_grad torch.autograd.inference_mode torch.autograd.set_grad_enabled".split()
)
_TRY = (ast.Try, getattr(ast, "TryStar", ast.Try))
_FORBIDDEN_STATEMENTS: tuple[tuple[type[ast.AST] | tuple[type[ast.AST], ...], str, str], ...] = (
    (ast.Global, "global", "`global` is not allowed: keep state on self"),
    (ast.Nonlocal, "nonlocal", "`nonlocal` is not allowed: return values instead"),
    ((ast.Yield, ast.YieldFrom), "generator", "`yield` is not allowed: return a list"),
    ((ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith), "async", "async code is not allowed"),
)


def statements(program: ParsedSource) -> Iterator[Violation]:
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
    if not isinstance(node, ast.Try) or node.finalbody or node.orelse or not any(map(is_import, node.body)):
        return False
    bodies = [*node.body, *(item for handler in node.handlers for item in handler.body)]
    return all(is_import(item) or isinstance(item, ast.Pass) or sets_constant(item) for item in bodies)


def _is_local(program: ParsedSource, target: ast.AST) -> bool:
    return isinstance(target, ast.Name) and not program.is_global(target.id, target)


def _contexts(program: ParsedSource, node: ast.With) -> Iterator[Violation]:
    for item in node.items:
        paths = program.paths(head(item.context_expr))
        if not paths or not all(path in CONTEXTS or path.startswith("triton.language.") for path in paths):
            yield at(item.context_expr, "with", "`with` is allowed for torch.no_grad, autocast and devices only")


def decorators(program: ParsedSource) -> Iterator[Violation]:
    """Only decorators whose meaning is known."""
    for node in program.nodes:
        for item in getattr(node, "decorator_list", []):
            function = head(item)
            plain = isinstance(function, ast.Name) and function.id in _PLAIN_DECORATORS
            paths = program.paths(function)
            if not (plain and program.is_builtin(function)) and not (paths and paths <= DECORATORS):
                yield at(item, "decorator", f"decorator {ast.unparse(function)[:60]} is not allowed")


def entry_class(program: ParsedSource) -> Iterator[Violation]:
    """The class that is to be judged exists, once."""
    found = [node for node in program.tree.body if isinstance(node, ast.ClassDef) and node.name == program.entry]
    if not found:
        yield Violation("entry", 1, f"class {program.entry} is missing")
    for node in found[1:]:
        yield at(node, "entry", f"class {program.entry} is defined twice")
    for name in program.every(ast.Name):
        if name.id == program.entry and isinstance(name.ctx, ast.Store):
            yield at(name, "entry", f"{program.entry} must be a class and stay one")
