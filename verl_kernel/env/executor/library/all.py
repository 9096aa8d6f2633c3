# SPDX-License-Identifier: Apache-2.0
"""Which functions of the library a kernel needs, and their text."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from verl_kernel.env.executor.library import accesses, atomics, checks, functions, matrices
from verl_kernel.env.executor.library.function import Function, Key

_MADE_BY: dict[str, Callable[[Key], tuple[Function, str]]] = {
    "fault": checks.fault_text, "resolve": checks.resolve_text, "sectors": checks.sectors_text,
    "converged": checks.converged_text, "gather": accesses.gather_text, "copy": accesses.copy_text,
    "matrices": accesses.matrices_text, "product": matrices.product_text, "ex2": functions.ex2_text,
    "lg2": functions.lg2_text, "sin": functions.circular_text, "cos": functions.circular_text,
    "tanh": functions.tanh_text, "from_eight": functions.from_eight_text, "to_eight": functions.to_eight_text,
}  # fmt: skip
_ROOMS = ("global", "shared", "local")


def texts(keys: Iterable[Key]) -> tuple[list[str], dict[str, str]]:
    """The functions with these keys and all that they call, and the declarations of LLVM's that they need."""
    waiting, known = sorted(keys, key=str), set(keys)
    found: list[str] = []
    intrinsics: dict[str, str] = {}
    while waiting:
        made, text = _made(waiting.pop(0))
        found.append(text)
        intrinsics.update(made.intrinsics)
        for key in made.calls:
            if key not in known:
                known.add(key)
                waiting.append(key)
    return found, intrinsics


def _made(key: Key) -> tuple[Function, str]:
    if key[0] in _ROOMS:
        return atomics.atomic_text(key) if key[1] == "atomic" else accesses.access_text(key)
    return _MADE_BY[str(key[0])](key)
