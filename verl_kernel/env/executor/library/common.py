# SPDX-License-Identifier: Apache-2.0
"""Functions of the library that many kernels call, so that a process loads them before it knows of any kernel."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from verl_kernel.env.executor.lowering.writer import Key

_WIDTHS = (*product((8, 16, 32, 64), (1, 2)), *product((8, 16, 32), (4,)))
"""Bits of an element, and how many of them an instruction loads or stores."""
FIRST: tuple[Key, ...] = (("global", "load", 32, 4), ("global", "store", 32, 4))
"""What every kernel that loads and stores calls, and these call what most others do."""


def common() -> Iterator[Key]:
    """Their names, those first that nearly every kernel calls."""
    yield from FIRST
    for bits, count in _WIDTHS:
        yield from (("global", "load", bits, count), ("global", "store", bits, count))
        yield from (("shared", "load", bits, count), ("shared", "store", bits, count))
    yield from (("matrices", 4, False), ("matrices", 4, True), ("copy", 16), ("copy", 8), ("copy", 4), ("ex2",))
    yield from (("global", "fetch", 32, 4), ("global", "fetch", 32, 2), ("global", "fetch", 8, 1))
    yield from (("fma", "bfloat", 32), ("converged",), ("exchange", "idx"))
    for kind in ("f16", "bf16"):
        yield ("product", "m16n8k16", kind, kind, "f32", False)
    yield ("product", "m16n8k8", "tf32", "tf32", "f32", False)
    yield from (("global", "atomic", "add", kind, 1) for kind in ("f32", "u32", "f16"))
    yield from (("global", "atomic", code, "b32", 1) for code in ("cas", "exch"))
