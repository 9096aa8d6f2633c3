# SPDX-License-Identifier: Apache-2.0
"""Bounds of forwards that run with data on a CPU, and a test whether a task keeps to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch.utils import _pytree as pytree

from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.ops.call import tensors_in
from verl_kernel.env.ops.cost import op_cost
from verl_kernel.env.ops.dispatch_modes import OpMode
from verl_kernel.env.reference.program import ReferenceProgram
from verl_kernel.env.seeding import restored_generators
from verl_kernel.env.task import Task
from verl_kernel.errors import TaskError


@dataclass(frozen=True)
class Bounds:
    """Upper limits of one forward."""

    traffic: float
    """Bytes moved."""
    flops: float
    tensor_bytes: float
    """Bytes of weights, inputs, intermediate results and outputs together."""

    def hold(self, traffic: float, flops: float, tensor_bytes: float) -> bool:
        """Whether a forward keeps to the bounds."""
        return traffic <= self.traffic and flops <= self.flops and tensor_bytes <= self.tensor_bytes


WANTED = Bounds(traffic=3e6, flops=2e7, tensor_bytes=4e6)
"""Bounds that a reduced copy should keep to if possible."""
LARGER = Bounds(traffic=16e6, flops=1.5e8, tensor_bytes=16e6)
"""Bounds of the second, larger copy, which few trials use."""
ALLOWED = Bounds(traffic=96e6, flops=6e8, tensor_bytes=48e6)
"""Bounds of every reduced copy."""
WHOLE = Bounds(traffic=1e9, flops=1e10, tensor_bytes=4e8)
"""Bounds of a task that is judged at its own size."""
POSSIBLE = Bounds(traffic=4e9, flops=2e10, tensor_bytes=1e9)
"""Bounds of a task that torch runs in about a second: it is judged at its own size if it cannot be reduced."""


SLOW = 32
"""Number of operations that a float16 one counts as: CPUs have no instruction for it, so torch runs them singly."""


class _TooLarge(BaseException):
    """Ends a forward; it is not an `Exception`, because the program could catch that."""


def keeps_to(task: Task, device: DeviceBackend, bounds: Bounds) -> bool:
    """Whether a reference's forward keeps to bounds: it is run with data, and stopped where it exceeds them.

    A forward that fails counts as small: the preparation of the reference reports the failure.
    """
    try:
        with restored_generators(), torch.no_grad(), _Measuring(bounds):
            program = ReferenceProgram(task, device)
            program.build(program.init_inputs())
            program.forward_in_place(program.draw_for("dry"))
    except _TooLarge:
        return False
    except TaskError as exc:
        return "memory" not in str(exc)  # torch's allocator gave up: too large for the machine
    return True


class _Measuring(OpMode):
    """Adds up the bytes and operations of ops and the memory they allocate, and stops them beyond the bounds."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._bounds = bounds
        self._traffic = self._flops = self._bytes = 0

    def run_op(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        # Before the op runs: `torch.empty(1 << 40)` would end the process.
        self._check(_requested_bytes(func, args, kwargs))
        result = func(*args, **kwargs)
        if (cost := op_cost(func, args, kwargs, result)) is not None:
            is_slow = any(tensor.dtype is torch.float16 for tensor in tensors_in(args))
            self._traffic += cost.bytes
            self._flops += cost.flops + (SLOW - 1) * cost.half_flops * is_slow
        if not _is_alias(func):
            self._bytes += sum(leaf.nbytes for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor))
        self._check(0)
        return result

    def _check(self, requested_bytes: int) -> None:
        if not self._bounds.hold(self._traffic, self._flops, self._bytes + requested_bytes):
            raise _TooLarge


def _requested_bytes(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """Return the bytes that an op's arguments ask it to allocate, so that it can be stopped before it runs."""
    named = {item.name: value for item, value in zip(func._schema.arguments, args, strict=False)} | dict(kwargs)
    size = named.get("size")
    if not isinstance(size, list | tuple) or not all(type(length) is int for length in size):
        return 0
    dtype = named.get("dtype") or torch.get_default_dtype()
    return 0 if _is_alias(func) else prod(size) * dtype.itemsize


def _is_alias(func: Any) -> bool:
    """Whether an op returns memory of an argument: as a view, or because it wrote its result there."""
    return any(item.alias_info is not None for item in func._schema.returns)
