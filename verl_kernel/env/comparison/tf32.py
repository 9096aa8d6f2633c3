# SPDX-License-Identifier: Apache-2.0
"""Runs a program as if its float32 products used TF32: either operand keeps 10 of its 23 mantissa bits.

Tensor cores round operands towards zero when they read them; libraries and compilers round to nearest before that.
Attention, recurrent layers and other ops with products inside are decomposed, so that these products are rounded too.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import torch

from verl_kernel.env.ops.dispatch_modes import OpMode
from verl_kernel.env.ops.table import op_of, row_of
from verl_kernel.env.trace import TraceEvent

# How torch multiplies float32 matrices: in IEEE precision (`ieee`), or on tensor cores with TF32 operands (`tf32`).
#
# torch has two sets of switches: one per library (`allow_tf32`), and from 2.9 on one per library and kind of op
# (`fp32_precision`). Reading the old set raises where the two contradict each other, so both are written, and the new
# set is read where it exists. Lower precision of float32 in oneDNN on a CPU (TF32, bfloat16) is off in either mode.


_KINDS = tuple((library, kind) for library in ("cuda", "mkldnn") for kind in ("matmul", "conv", "rnn"))
_IS_SPLIT = hasattr(torch._C, "_get_fp32_precision_getter")
"""Whether torch has the newer switches. They are read directly: `torch.backends` takes six times as long."""
_State = tuple[str, ...]
"""Precision of each entry of `_KINDS`."""


def use(mode: str) -> None:
    """Set this process's switches to `ieee` or `tf32`."""
    _silence()
    _write((mode,) * 3 + ("ieee",) * 3)


@contextmanager
def precision(mode: str) -> Iterator[None]:
    """Call `use` for the body, which may change the switches itself; restore them afterwards."""
    earlier, state = _read(), (mode,) * 3 + ("ieee",) * 3
    if earlier != state:
        use(mode)
    try:
        yield
    finally:
        if _read() != earlier:
            _write(earlier)


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


_DROPPED = (1 << 13) - 1
"""Mask of the mantissa bits of a float32 that TF32 drops."""
_ATTENTION = ("scaled_dot_product", "_native_multi_head_attention", "_transformer_encoder_layer")
_RECURRENT = ("lstm", "gru", "rnn")


def has_products(events: Iterable[TraceEvent]) -> bool:
    """Whether a forward with this trace multiplies matrices, in float32 or another type."""
    names = _names(event for event in events if event.kind == "op")
    return any(row_of(name).factors for name in names) or _holds(names, (*_ATTENTION, *_RECURRENT))


@contextmanager
def rounded_products(events: Iterable[TraceEvent], seed: int | None) -> Iterator[Rounding]:
    """Round the factors of float32 products to TF32 in the body.

    Args:
        events: trace of the program that will run.
        seed: seed of the rounding directions, up or down for each number independently; None rounds towards zero.
    """
    names = _names(events)
    with ExitStack() as stack:
        if _holds(names, _ATTENTION):
            _take_apart_attention(stack)
        if _holds(names, _RECURRENT):
            _take_apart_recurrent(stack)
        stack.enter_context(precision("tf32"))  # exact for rounded factors, and faster on a GPU
        rounding = Rounding(seed)
        with rounding:
            yield rounding


class Rounding(OpMode):
    """Rounds the factors of each product."""

    def __init__(self, seed: int | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}
        self.was_used = False
        """Whether there was a factor to round."""

    def run_op(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run an op with its factors rounded."""
        factors = op_of(func).factors
        args = tuple(self._rounded(value) if index in factors else value for index, value in enumerate(args))
        return func(*args, **kwargs)

    def _rounded(self, factor: Any) -> Any:
        if (
            not isinstance(factor, torch.Tensor)
            or factor.dtype is not torch.float32
            or factor.layout is not torch.strided
        ):
            return factor
        self.was_used = True
        return rounded(factor, 0 if self._seed is None else self._coins(factor) * _DROPPED)

    def _coins(self, like: torch.Tensor) -> torch.Tensor:
        if like.device not in self._generators:
            self._generators[like.device] = torch.Generator(like.device).manual_seed(self._seed or 0)
        coins = torch.empty(like.shape, dtype=torch.int32, device=like.device)
        return coins.random_(0, 2, generator=self._generators[like.device])


def rounded(tensor: torch.Tensor, added: torch.Tensor | int = 0) -> torch.Tensor:
    """Return the numbers of a float32 tensor rounded to TF32.

    Args:
        tensor: of any shape.
        added: number added to the 13 bits that are dropped: 0 rounds towards zero, 0x1000 to nearest (ties away from
            zero), 0x1FFF away from zero.
    """
    bits = (tensor.view(torch.int32) + added) & ~_DROPPED
    return torch.where(tensor.isfinite(), bits.view(torch.float32), tensor)


def _take_apart_attention(stack: ExitStack) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    # The math backend runs attention as `bmm` and `softmax`, whose factors can be rounded; fused kernels hide them.
    stack.enter_context(sdpa_kernel(SDPBackend.MATH))
    mha = torch.backends.mha
    stack.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
    mha.set_fastpath_enabled(False)


def _take_apart_recurrent(stack: ExitStack) -> None:
    # Without cuDNN and oneDNN a recurrent layer is a loop of products, each of which is rounded.
    stack.callback(setattr, torch.backends.cudnn, "enabled", torch.backends.cudnn.enabled)
    torch.backends.cudnn.enabled = False
    stack.callback(torch._C._set_mkldnn_enabled, torch._C._get_mkldnn_enabled())
    torch._C._set_mkldnn_enabled(False)


def _names(events: Iterable[TraceEvent]) -> set[str]:
    """Return names of ops without their overloads: `aten::mm` for `aten::mm.out`."""
    return {event.name.partition(".")[0] for event in events}


def _holds(names: Iterable[str], words: tuple[str, ...]) -> bool:
    return any(word in name for name in names for word in words)
