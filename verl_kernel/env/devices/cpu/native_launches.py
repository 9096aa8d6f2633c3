# SPDX-License-Identifier: Apache-2.0
"""Hands launches to the process that executes compiled kernels, with the memory that they may touch."""

from __future__ import annotations

import ctypes
import inspect
import operator
from collections.abc import Mapping
from typing import Any, cast

import torch
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.jit import TensorWrapper
from triton.tools.tensor_descriptor import TensorDescriptor

from verl_kernel.env.compilation.outcome import PASSED_OVER
from verl_kernel.env.devices.cpu.counting import STATE, Range
from verl_kernel.env.devices.cpu.launch_variants import VARIANTS
from verl_kernel.env.devices.cpu.native_work import NativeWork
from verl_kernel.env.devices.cpu.stores import STORES
from verl_kernel.env.executor.flow.origins import Kind
from verl_kernel.env.ipc.channel import Channel
from verl_kernel.env.ipc.execution_messages import Launch, LaunchRequest, Work
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.trace import Step

_GAP, _RESIDUE = 4096, 256
"""Bytes between two tensors in the arena; a tensor's address there leaves the same remainder as here."""


class NotRun(RuntimeError):
    """A launch did not run to its end in the executing process; the judge hears why from there."""


class NativeLaunches:
    """The link of this process to the executing one.

    Args:
        link: to it.
        arena: memory that both have.
    """

    def __init__(self, link: Channel, arena: SharedMemory) -> None:
        self._link, self._memory = link, arena.region(0, arena.size)

    def launch(self, executor: Any, *args: Any, **kwargs: Any) -> None:
        """Run a launch there (in place of `GridExecutor.__call__`); in an ablation, leave out one that it concerns.

        Raises:
            NotRun: it did not run to its end.
            MemoryError: its tensors do not fit into the memory that is granted.
        """
        STORES.begin((executor.fn.__code__.co_filename, executor.fn.__name__))
        kept = cast("list[Kind]", [*(STORES.kept or ())]) if STORES.leaves_out else None
        if kept == []:
            return
        known = inspect.signature(executor.fn).parameters
        given = {name: value for name, value in kwargs.items() if name in known}
        bound = inspect.getcallargs(executor.fn, *args, **given)
        places = _places(set(STATE.ranges), len(self._memory))
        values = {name: _told(value, places) for name, value in bound.items() if name not in executor.constexprs}
        self._copy(places, inwards=True)
        areas = [(offset, stop - start) for (start, stop), offset in places.items()]
        unit, grid = VARIANTS.latest().to_json(), list(executor.grid)
        request = LaunchRequest(
            unit=unit,
            grid=grid,
            arguments=values,
            areas=areas,
            is_tried=STORES.is_paused,
            kept=kept,
            pointers=[],
            fresh=[],
        )
        self._link.send(Launch(launch=request))
        reply = self._link.recv()
        if not STORES.is_paused:  # what an autotuner tries leaves nothing behind
            self._copy(places, inwards=False)
        if reply["failure"] is not None:
            raise _failed(reply["failure"])
        if (told := reply["work"]) is not None:
            STATE.native_work = _work(told, list(places))
            STORES.stored, STORES.computed = told["stored"], told["computed"]

    def _copy(self, places: Mapping[Range, int], inwards: bool) -> None:
        for (start, stop), offset in places.items():
            there = self._memory.data_ptr() + offset
            target, source = (there, start) if inwards else (start, there)
            ctypes.memmove(target, source, stop - start)


def _failed(message: str) -> Exception:
    """What an autotuner takes for a configuration that is none, where one is tried; else a failed launch."""
    is_passed_over = STORES.is_paused and message.startswith(PASSED_OVER)
    failure: Exception = CompileTimeAssertionFailure(None, None, message) if is_passed_over else NotRun(message)
    return failure


def _work(told: Work, places: list[Range]) -> NativeWork:
    """What a launch did, with its tensors."""
    tensors = dict(zip(STATE.ranges, STATE.tensors, strict=True))
    reads, writes = (
        [(tensors[places[number]], size) for number, size in some] for some in (told["reads"], told["writes"])
    )
    steps = tuple(map(Step.from_json, told["steps"]))
    return NativeWork((told["bytes"], told["flops"], told["half_flops"]), steps, (reads, writes))


def _places(ranges: set[Range], size: int) -> dict[Range, int]:
    """Where pieces of this process's memory lie in the arena."""
    places: dict[Range, int] = {}
    end = 0
    for start, stop in sorted(ranges):
        free = end + _GAP
        places[start, stop] = free + (start - free) % _RESIDUE
        end = places[start, stop] + stop - start
    if end + _GAP > size:
        raise MemoryError("the tensors of a launch are larger than the memory that is granted")
    return places


def _told(value: Any, places: Mapping[Range, int]) -> Any:
    """An argument as JSON."""
    if isinstance(value, TensorDescriptor):
        flags = {"padding": value.padding, "round_f32_to_tf32": value.round_f32_to_tf32}
        shape, strides = (list(map(int, sizes)) for sizes in (value.shape, value.strides))
        return {"descriptor": {"base": _told(value.base, places), "shape": shape, "strides": strides, **flags}}
    if isinstance(value, TensorWrapper):
        value = value.base
    if isinstance(value, torch.Tensor):
        return {"tensor": _offset(value, places)}
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, tuple | list):
        return [_told(item, places) for item in value]
    if isinstance(value, bool):
        return value
    return operator.index(value) if hasattr(value, "__index__") else None


def _offset(tensor: torch.Tensor, places: Mapping[Range, int]) -> int:
    """Of its first element; one that launches may not touch lies before all that they may."""
    address = tensor.data_ptr()
    for (start, stop), offset in places.items():
        if start <= address <= stop:
            return offset + address - start
    return 0
