# SPDX-License-Identifier: Apache-2.0
"""Runs one forward of a reference without data, in milliseconds at any size, to find its ops and tensor sizes."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import torch

from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.machine.roofline import Demand
from verl_kernel.env.reference.program import ReferenceProgram
from verl_kernel.env.reference.value import Value
from verl_kernel.env.seeding import restored_generators
from verl_kernel.env.tamper.tripwire import WIRE
from verl_kernel.env.task import Task
from verl_kernel.env.trace import TraceEvent
from verl_kernel.env.true_size import dataless
from verl_kernel.env.true_size.bounds import SLOW
from verl_kernel.env.true_size.dataless import AddressSpace, DatalessMode
from verl_kernel.env.weights import state_of
from verl_kernel.errors import TaskError


@dataclass(frozen=True)
class DryForward:
    """Record of a forward on tensors without data."""

    ops: tuple[str, ...]
    """Names of torch's ops in order, without views."""
    events: list[TraceEvent]
    demand: Demand
    """Least memory traffic and work of the forward."""
    init: Value = field(repr=False)  # the repr of a tensor reads its data
    inputs: Value = field(repr=False)
    output: Value = field(repr=False)
    weight_shapes: tuple[tuple[int, ...], ...]
    """Shapes of parameters and buffers."""
    tensor_bytes: int
    """Bytes of weights, inputs, intermediate results and outputs together."""

    @property
    def traffic(self) -> int:
        """Bytes moved."""
        return sum(event.bytes for event in self.events)

    @property
    def flops(self) -> int:
        """Number of operations."""
        return sum(event.flops for event in self.events)

    @property
    def work(self) -> int:
        """Number of operations; one on float16 counts `SLOW` times, because CPUs are slow at them."""
        is_slow = any(tensor.dtype is torch.float16 for tensor in (*self.inputs.tensors, *self.output.tensors))
        return self.flops + (SLOW - 1) * sum(event.half_flops for event in self.events) * is_slow

    @property
    def share_read(self) -> float:
        """Bytes of inputs and weights that the forward reads over the size of its inputs, at most 1."""
        size = sum(tensor.nbytes for tensor in self.inputs.tensors)
        return min(1.0, self.demand.read / size) if size else 1.0


@contextmanager
def without_data(space: AddressSpace) -> Iterator[DatalessMode]:
    """Run programs in the context without data."""
    with ExitStack() as stack:
        stack.enter_context(dataless.without_compiler())
        stack.enter_context(_refused_reads(space))
        yield stack.enter_context(DatalessMode(space))


@contextmanager
def _refused_reads(space: AddressSpace) -> Iterator[None]:
    """Refuse reads of whole tensors on the host, which the tripwire alone would only record."""
    original = WIRE.read_in_bulk

    def read(tensor: torch.Tensor, how: str) -> None:
        if space.is_unknown(tensor):
            raise space.refuse(f"{how} reads a tensor on the host")
        original(tensor, how)

    WIRE.read_in_bulk = read  # type: ignore[method-assign]
    try:
        yield
    finally:
        del WIRE.read_in_bulk


def dry_forward(task: Task, device: DeviceBackend) -> DryForward:
    """Run a reference's forward once without data.

    Raises:
        TaskError: the forward fails, or needs data.
    """
    space = AddressSpace()
    try:
        with restored_generators(), torch.no_grad(), without_data(space) as mode:
            forward = _run(task, device, mode, space)
    finally:
        linecache.cache.pop(f"<reference {task.fingerprint[:12]}>", None)
    if space.reasons:
        raise TaskError(f"reference {task.task_id} cannot be followed without data: {space.reasons[0]}")
    return forward


def _run(task: Task, device: DeviceBackend, mode: DatalessMode, space: AddressSpace) -> DryForward:
    program = ReferenceProgram(task, device)
    init = program.init_inputs()
    program.build(init)
    inputs = program.draw_for("dry")
    mode.ops.clear()
    output, events, demand = program.surveyed(inputs)
    shapes = tuple(tuple(tensor.shape) for tensor in state_of(program.model).values())
    return DryForward(tuple(mode.ops), events, demand, init, inputs, output, shapes, space.allocated)
