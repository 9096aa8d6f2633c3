# SPDX-License-Identifier: Apache-2.0
"""Lists the functions of the library, and those that most kernels call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

from verl_kernel.env.emulator.library import (
    access_log,
    accesses,
    atomics,
    checks,
    exchanges,
    functions,
    matrices,
    shadow_memory,
    traffic,
)
from verl_kernel.env.emulator.library.context import FunctionWriter
from verl_kernel.env.emulator.lowering.writer import Key

# Functions of the library that many kernels call: a process may compile them before it gets a kernel.


_WIDTHS = (*product((8, 16, 32, 64), (1, 2)), *product((8, 16, 32), (4,)))
"""Bits of an element, and the number of elements that an instruction loads or stores."""
FIRST: tuple[Key, ...] = (("global", "load", 32, 4), ("global", "store", 32, 4))
"""Functions that every kernel with loads and stores calls; these call the functions that most others need."""


def common() -> Iterator[Key]:
    """Yield the keys of these functions; those that nearly every kernel calls come first."""
    yield from FIRST
    for bits, count in _WIDTHS:
        yield from (("global", "load", bits, count), ("global", "store", bits, count))
        yield from (("shared", "load", bits, count), ("shared", "store", bits, count))
    yield from (("matrices", 4, False), ("matrices", 4, True), ("copy", 16), ("copy", 8), ("copy", 4), ("ex2",))
    # What asynchronous copies are made of.
    yield from (("global", "fetch", 32, 4), ("global", "fetch", 32, 2), ("global", "fetch", 8, 1))
    yield from (("fma", "bfloat", 32), ("converged",), ("exchange", "idx"))
    # Products of matrices that Triton writes for these types.
    for kind in ("f16", "bf16"):
        yield ("product", "m16n8k16", kind, kind, "f32", False)
    yield ("product", "m16n8k8", "tf32", "tf32", "f32", False)
    yield from (("global", "atomic", "add", kind, 1) for kind in ("f32", "u32", "f16"))
    yield from (("global", "atomic", code, "b32", 1) for code in ("cas", "exch"))


_WRITERS: dict[str, Callable[[Key], tuple[FunctionWriter, str]]] = {
    "fault": checks.fault_text,
    "resolve": checks.resolve_text,
    "sectors": traffic.sectors_text,
    "span": traffic.span_text,
    "passes": traffic.passes_text,
    "exchange": exchanges.exchange_text,
    "permute": functions.permute_text,
    "directed": functions.directed_text,
    "converged": checks.converged_text,
    "copy": accesses.copy_text,
    "fma": functions.fma_text,
    "matrices": matrices.matrices_text,
    "product": matrices.product_text,
    "ex2": functions.ex2_text,
    "lg2": functions.lg2_text,
    "sin": functions.circular_text,
    "cos": functions.circular_text,
    "cells": shadow_memory.cells_text,
    "log": access_log.log_text,
    "watch": access_log.watch_text,
    "order": access_log.order_text,
    "tanh": functions.tanh_text,
    "from_eight": functions.from_eight_text,
    "to_eight": functions.to_eight_text,
    "voids": traffic.voids_text,
}
"""What writes a function of the library, by the first part of its key."""
_ROOMS = ("global", "shared", "local")
"""Kinds of memory: keys of accesses begin with one."""


def text(key: Key) -> tuple[str, list[Key]]:
    """Return the module that holds a function of the library, and the functions that it calls."""
    if key[0] in _ROOMS:
        body, ir = atomics.atomic_text(key) if key[1] == "atomic" else accesses.access_text(key)
    else:
        body, ir = _WRITERS[str(key[0])](key)
    return ir, list(body.calls)
