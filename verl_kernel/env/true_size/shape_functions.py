# SPDX-License-Identifier: Apache-2.0
"""Loads torch's shape functions (its device `meta`) without torch's compiler.

The first op on `meta` imports them, and with them `torch._dynamo`, of which they use nothing but `disable`: a marker
that keeps the compiler away from a function. Without it that import takes half the time and memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

_COMPILER = "torch._dynamo"


def load() -> None:
    """Import them now rather than at the first dry pass."""
    with without_compiler():
        _ = torch.empty(1, device="meta") + 1


@contextmanager
def without_compiler() -> Iterator[None]:
    """Keep `torch._dynamo` from being imported inside; where it is loaded already, nothing changes."""
    if _COMPILER in sys.modules:
        yield
        return
    had = vars(torch).get("_dynamo")
    stand_in: Any = ModuleType(_COMPILER)
    stand_in.disable = _unchanged
    sys.modules[_COMPILER] = stand_in
    torch._dynamo = stand_in
    try:
        yield
    finally:
        if sys.modules.get(_COMPILER) is stand_in:
            del sys.modules[_COMPILER]
        if had is None:
            del torch._dynamo
        else:
            torch._dynamo = had


def _unchanged(function: Callable[..., Any], recursive: bool = True, **options: Any) -> Callable[..., Any]:
    return function
