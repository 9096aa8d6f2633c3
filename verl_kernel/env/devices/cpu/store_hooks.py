# SPDX-License-Identifier: Apache-2.0
"""Wraps Triton's interpreter so that every load and store of a launch passes through `stores`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from triton.runtime.interpreter import GridExecutor, InterpreterBuilder, TensorHandle

from verl_kernel.env.devices.cpu.blocks import Block
from verl_kernel.env.devices.cpu.stores import STORES


def install() -> None:
    """Wrap the interpreter (once per process, before the launches are)."""
    GridExecutor.__call__ = _launching(GridExecutor.__call__)
    builder = InterpreterBuilder
    builder.set_grid_idx = _beginning(builder.set_grid_idx)
    builder.create_masked_load = _loading(builder.create_masked_load)
    builder.create_masked_store = _storing(builder.create_masked_store)
    builder.create_atomic_rmw = _adding(builder.create_atomic_rmw)


def _launching(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        if 0 in self.grid:
            return original(self, *args, **kwargs)
        STORES.begin((self.fn.__code__.co_filename, self.fn.__name__))
        if STORES.is_left_out:
            return None
        try:
            return original(self, *args, **kwargs)
        finally:
            STORES.end()

    return launch


def _beginning(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def set_grid_idx(self: Any, *index: Any) -> Any:
        STORES.begin_program()
        return original(self, *index)

    return set_grid_idx


def _loading(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def load(self: Any, pointers: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        result = original(self, pointers, mask, *rest, **options)
        if STORES.kept is None:
            STORES.loaded(Block(result.data, _lanes(mask)))
        return result

    return load


def _storing(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        block, places = _block(pointers, value, mask)
        return original(self, pointers, value, mask, *rest, **options) if STORES.happens(block, places) else None

    return store


def _adding(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def add(self: Any, op: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        block, places = _block(pointers, value, mask)
        if STORES.kept is None and places.size:
            before = original(self, op, pointers, value, mask, *rest, **options)
            STORES.happens(block, places, movable="XCHG" in str(op) or not np.any(before.data[block.active]))
            return before
        if STORES.happens(block, places):
            return original(self, op, pointers, value, mask, *rest, **options)
        return self.create_masked_load(pointers, mask, None, None, None, False)

    return add


def _block(pointers: Any, value: Any, mask: Any) -> tuple[Block, np.ndarray[Any, Any]]:
    shape = np.broadcast_shapes(pointers.data.shape, value.data.shape)
    block = Block(np.broadcast_to(value.data, shape), _lanes(mask))
    return block, np.broadcast_to(pointers.data, shape)[block.active]


def _lanes(mask: Any) -> Any:
    data = mask.data if isinstance(mask, TensorHandle) else mask
    return np.asarray(data) != 0
