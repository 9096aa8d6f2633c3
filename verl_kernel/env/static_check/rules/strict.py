# SPDX-License-Identifier: Apache-2.0
"""Strict mode: host code allocates and launches, kernels compute."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import torch

from verl_kernel.env.static_check.names import ParsedSource, Violation, at
from verl_kernel.env.static_check.rules.classes import is_layer

_ALLOCATION = (
    "empty empty_like empty_strided zeros zeros_like ones ones_like full full_like tensor as_tensor device Size dtype "
    "arange is_tensor is_floating_point finfo iinfo no_grad inference_mode promote_types result_type broadcast_shapes "
    "is_grad_enabled set_float32_matmul_precision enable_grad"
).split()
_MOVEMENT = (
    "view reshape contiguous size stride dim numel data_ptr to type float half double int long bool transpose permute "
    "t unsqueeze squeeze expand expand_as flatten unflatten clone detach item is_contiguous element_size "
    "storage_offset new_empty new_zeros new_ones new_full copy_ zero_ fill_ cuda cpu chunk split unbind select narrow "
    "as_strided movedim swapaxes ndimension nelement is_floating_point requires_grad_ get_device view_as"
).split()
_EMPTY = frozenset("torch.nn.Module torch.nn.ModuleList torch.nn.ModuleDict torch.nn.ParameterList".split())
_COMPUTING_METHODS = frozenset(name for name in dir(torch.Tensor) if not name.startswith("_")) - frozenset(_MOVEMENT)


def torch_compute(program: ParsedSource) -> Iterator[Violation]:
    """Yield computations in host code, which may only allocate and launch in strict mode."""
    modules = _torch_modules(program)
    for node, _ in program.enclosed(lambda function: _is_host(program, function)):
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
            yield at(node, "torch", "matrix product in host code: strict mode wants it in a kernel")
        elif isinstance(node, ast.Call) and (name := _computes(program, node, modules)):
            yield at(node, "torch", f"{name} computes in host code: strict mode wants it in a kernel")
    yield from _inherited(program)


def _inherited(program: ParsedSource) -> Iterator[Violation]:
    """Yield classes that compute by the forward of torch's module from which they inherit."""
    for node in program.every(ast.ClassDef):
        layers = [path for base in node.bases for path in program.paths(base) if is_layer(path)]
        layers = [path for path in layers if path not in _EMPTY]
        own = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
        super_calls = [part for part in ast.walk(node) if _is_super(part, "forward")] if layers else []
        for location in super_calls or ([node] if layers and "forward" not in own else []):
            yield at(location, "torch", f"{layers[0]} computes in host code: strict mode wants it in a kernel")


def _is_super(node: ast.AST, method: str) -> bool:
    """Whether a node is `super().method`."""
    if not (isinstance(node, ast.Attribute) and node.attr == method and isinstance(node.value, ast.Call)):
        return False
    return isinstance(node.value.func, ast.Name) and node.value.func.id == "super"


def _is_host(program: ParsedSource, function: ast.AST) -> bool:
    setup = ("__init__", "get_inputs", "get_init_inputs", "reset_parameters")
    return isinstance(function, ast.FunctionDef) and not program.is_jit(function) and function.name not in setup


def _torch_modules(program: ParsedSource) -> set[str]:
    """Return the attributes of self that hold torch modules (`self.norm = nn.LayerNorm(d)`)."""
    return {
        target.attr
        for node in program.nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Attribute)
        and any(path.startswith("torch.nn.") and "Parameter" not in path for path in program.paths(node.value.func))
    }


def _computes(program: ParsedSource, call: ast.Call, modules: set[str]) -> str:
    paths = program.paths(call.func)
    for path in sorted(paths):
        computing = path.startswith(("torch.nn.functional.", "torch.linalg.", "torch.fft.", "torch.special."))
        computing = computing or (path.startswith("torch.") and path.count(".") == 1)
        computing = computing or path in ("einops.reduce", "einops.einsum")
        if computing and path.rpartition(".")[2] not in _ALLOCATION:
            return path
    if paths or not isinstance(call.func, ast.Attribute):
        return ""
    if isinstance(call.func.value, ast.Name) and call.func.value.id == "self":
        return f"self.{call.func.attr}" if call.func.attr in modules else ""
    return f".{call.func.attr}()" if call.func.attr in _COMPUTING_METHODS else ""
