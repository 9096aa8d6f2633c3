# SPDX-License-Identifier: Apache-2.0
"""Wraps Triton's interpreter so that every access of a checked launch is noted; a store before it happens."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from triton._C.libtriton import interpreter as machine
from triton._C.libtriton import ir
from triton.runtime.interpreter import GridExecutor, InterpreterBuilder, TensorHandle

from verl_kernel.env.devices.cpu.counting import OutOfBounds
from verl_kernel.env.devices.cpu.memory.access import Access, Array, Kind, active, find_place, is_discarded
from verl_kernel.env.devices.cpu.memory.launch_log import LaunchLog
from verl_kernel.env.devices.cpu.memory.watch import WATCH
from verl_kernel.env.devices.cpu.stores import STORES

_SEMANTIC = ir.MEM_SEMANTIC
_LEARN = (_SEMANTIC.ACQUIRE, _SEMANTIC.ACQUIRE_RELEASE)
_TELL = (_SEMANTIC.RELEASE, _SEMANTIC.ACQUIRE_RELEASE)
_VOLATILE = 3
"""Place of `is_volatile` behind pointers and mask."""


def install() -> None:
    """Note what happens (once per process, before the bounds are checked around it)."""
    GridExecutor.__call__ = _launching(GridExecutor.__call__)
    builder = InterpreterBuilder
    builder.set_grid_idx = _beginning(builder.set_grid_idx)
    builder.create_masked_load = _loading(builder.create_masked_load)
    builder.create_masked_store = _storing(builder.create_masked_store)
    builder.create_atomic_rmw = _updating(builder.create_atomic_rmw)
    builder.create_atomic_cas = _swapping(builder.create_atomic_cas)


def install_guard() -> None:
    """Note what the check of the bounds refuses (once per process, after that)."""
    kinds = {"masked_load": Kind.LOAD, "masked_store": Kind.STORE, "atomic_rmw": Kind.ATOMIC, "atomic_cas": Kind.ATOMIC}
    for name, kind in kinds.items():
        method = getattr(InterpreterBuilder, f"create_{name}")
        setattr(InterpreterBuilder, f"create_{name}", _guarded(method, kind))


def _launching(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not WATCH.is_on or 0 in self.grid:
            return original(self, *args, **kwargs)
        with WATCH.launch(self, args, kwargs):
            return original(self, *args, **kwargs)

    return launch


def _log() -> LaunchLog | None:
    """Where accesses are noted; what a tuner only tries leaves no traces, so it is checked for bounds only."""
    return None if STORES.is_paused else WATCH.log


def _beginning(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def set_grid_idx(self: Any, *index: Any) -> Any:
        if WATCH.log is not None:
            WATCH.log.program += 1
        return original(self, *index)

    return set_grid_idx


def _loading(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def load(self: Any, pointers: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        result = original(self, pointers, mask, *rest, **options)
        if (log := _log()) is not None:
            is_volatile = options.get("is_volatile", rest[_VOLATILE] if len(rest) > _VOLATILE else False)
            kind = Kind.VOLATILE if is_volatile else Kind.LOAD
            lanes, place = _lanes(pointers, mask, result.data.shape), find_place(log.file)
            number = log.add(access := Access(kind, log.program, *lanes, result.data.itemsize, place))
            if is_volatile:
                log.order.learn(log.program, number, access.addresses)
        return result

    return load


def _storing(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        if (log := _log()) is not None:
            lanes, data = _lanes(pointers, mask, value.data.shape), value.data
            before = _peek(active(*lanes), data.dtype)
            place = find_place(log.file)
            log.add(Access(Kind.STORE, log.program, *lanes, data.itemsize, place, data, before))
        return original(self, pointers, value, mask, *rest, **options)

    return store


def _updating(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def update(self: Any, op: Any, pointers: Any, value: Any, mask: Any, sem: Any, *rest: Any) -> Any:
        if (log := _log()) is not None:
            lanes = _lanes(pointers, mask, value.data.shape)
            _note_atomic(log, lanes, value.data.itemsize, sem, may_exchange=op == ir.ATOMIC_OP.XCHG)
        return original(self, op, pointers, value, mask, sem, *rest)

    return update


def _swapping(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def swap(self: Any, pointers: Any, compared: Any, value: Any, sem: Any, *rest: Any) -> Any:
        if (log := _log()) is not None:
            lanes = _lanes(pointers, True, value.data.shape)
            _note_atomic(log, lanes, value.data.itemsize, sem, may_exchange=False)
        return original(self, pointers, compared, value, sem, *rest)

    return swap


def _note_atomic(log: LaunchLog, lanes: tuple[Array, Array], itemsize: int, sem: Any, may_exchange: bool) -> None:
    place = find_place(log.file)
    is_blind = is_discarded(place)
    kind = Kind.EXCHANGE if may_exchange and is_blind else Kind.ATOMIC
    access = Access(kind, log.program, *lanes, itemsize, place)
    number, addresses = log.add(access), access.addresses
    if sem in _LEARN and not is_blind:
        log.order.learn(log.program, number, addresses)
    if sem in _TELL:
        log.order.tell(log.program, number, addresses)


def _guarded(original: Callable[..., Any], kind: Kind) -> Callable[..., Any]:
    @wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        except OutOfBounds as exc:
            WATCH.out_of_bounds(kind, exc)
            raise

    return method


def _lanes(pointers: Any, mask: Any, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Addresses of all lanes of an access to values of this shape, and which of the lanes are active."""
    addresses, lanes = pointers.data, np.asarray(mask.data if isinstance(mask, TensorHandle) else mask, dtype=bool)
    if addresses.shape == lanes.shape == shape:
        return addresses, lanes
    shape = np.broadcast_shapes(addresses.shape, shape)
    return np.broadcast_to(addresses, shape), np.broadcast_to(lanes, shape)


def _peek(addresses: Array, dtype: np.dtype[Any]) -> Array:
    """What lies there now."""
    found: Array = machine.load(addresses, np.ones(addresses.shape, bool), np.zeros(addresses.shape, dtype), dtype)
    return found
