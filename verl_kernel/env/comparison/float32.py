# SPDX-License-Identifier: Apache-2.0
"""How torch multiplies float32 matrices: as IEEE says (`ieee`), or on tensor cores with operands of TF32 (`tf32`).

torch has two sets of switches: one per library (`allow_tf32`), and from 2.9 on one per library and kind of op
(`fp32_precision`). Reading the first raises where the two contradict each other, so both are written, and the second is
read where there is one. What oneDNN may do to float32 on a CPU (TF32, bfloat16) is off in either mode.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

_KINDS = tuple((library, kind) for library in ("cuda", "mkldnn") for kind in ("matmul", "conv", "rnn"))
_IS_SPLIT = hasattr(torch._C, "_get_fp32_precision_getter")
"""Whether there are the newer switches; through `torch.backends`, reading them takes six times as long."""
_State = tuple[str, ...]
"""Precision of each of `_KINDS`."""


def use(mode: str) -> None:
    """Set this process's switches to `ieee` or `tf32`."""
    _silence()
    _write((mode,) * 3 + ("ieee",) * 3)


@contextmanager
def precision(mode: str) -> Iterator[None]:
    """`use` inside, unless a program there chooses for itself; afterwards it is as before."""
    before, wanted = _read(), (mode,) * 3 + ("ieee",) * 3
    if before != wanted:
        use(mode)
    try:
        yield
    finally:
        if _read() != before:
            _write(before)


def _read() -> _State:
    if _IS_SPLIT:
        return tuple(torch._C._get_fp32_precision_getter(*kind) for kind in _KINDS)
    matmul, cudnn = torch.get_float32_matmul_precision(), "tf32" if torch.backends.cudnn.allow_tf32 else "ieee"
    onednn = "bf16" if matmul == "medium" else "ieee"
    return "ieee" if matmul == "highest" else "tf32", cudnn, cudnn, onednn, "ieee", "ieee"


def _write(state: _State) -> None:
    matmul, convolution, _, onednn, *_ = state
    fast = "medium" if onednn == "bf16" else "high"
    torch.set_float32_matmul_precision(fast if matmul == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = convolution == "tf32"
    if _IS_SPLIT:
        for kind, value in zip(_KINDS, state, strict=True):
            torch._C._set_fp32_precision_setter(*kind, value)


@cache
def _silence() -> None:
    """Trigger and drop torch's deprecation warning about the old switches, which it gives once per process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _write(_read())
