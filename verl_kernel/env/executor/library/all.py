# SPDX-License-Identifier: Apache-2.0
"""Which functions the library has."""

from __future__ import annotations

from collections.abc import Callable

from verl_kernel.env.executor.library import (
    accesses,
    atomics,
    banks,
    cells,
    checks,
    copies,
    exchanges,
    functions,
    logs,
    matrices,
    permuting,
    traffic,
    voids,
    watching,
)
from verl_kernel.env.executor.library.function import Function
from verl_kernel.env.executor.lowering.writer import Key

_MADE_BY: dict[str, Callable[[Key], tuple[Function, str]]] = {
    "fault": checks.fault_text, "resolve": checks.resolve_text, "sectors": traffic.sectors_text,
    "span": traffic.span_text, "passes": banks.passes_text, "exchange": exchanges.exchange_text,
    "permute": permuting.permute_text,
    "converged": checks.converged_text, "copy": copies.copy_text, "fma": functions.fma_text,
    "matrices": matrices.matrices_text, "product": matrices.product_text, "ex2": functions.ex2_text,
    "lg2": functions.lg2_text, "sin": functions.circular_text, "cos": functions.circular_text,
    "cells": cells.cells_text, "log": logs.log_text, "watch": watching.watch_text, "order": watching.order_text,
    "tanh": functions.tanh_text, "from_eight": functions.from_eight_text, "to_eight": functions.to_eight_text,
    "voids": voids.voids_text,
}  # fmt: skip
_ROOMS = ("global", "shared", "local")


def text(key: Key) -> tuple[str, list[Key]]:
    """The module that holds a function of the library, and which others it calls."""
    if key[0] in _ROOMS:
        made, written = atomics.atomic_text(key) if key[1] == "atomic" else accesses.access_text(key)
    else:
        made, written = _MADE_BY[str(key[0])](key)
    return written, list(made.calls)
