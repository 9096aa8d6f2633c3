# SPDX-License-Identifier: Apache-2.0
"""NumPy implementations of `triton.language.extra.libdevice`, which the interpreter lacks.

As on a GPU the functions take float32 and float64 only; a name without an implementation here raises a clear
error instead of Triton's silent None.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle, interpreter_semantic

from verl_kernel.env.devices.cpu.counting import count_flops

_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _rsqrt(x: Any) -> Any:
    return 1 / np.sqrt(x)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in "sqrt cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan".split()},
    **{name: getattr(np, name) for name in "sinh cosh tanh floor ceil trunc rint copysign hypot nextafter".split()},
    "abs": np.abs,
    "fabs": np.abs,
    "nearbyint": np.rint,
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "pow": np.power,
    "fmod": np.fmod,
    "remainder": lambda x, y: x - y * np.rint(x / y),
    "fdim": lambda x, y: np.maximum(x - y, 0),
    "exp10": lambda x: np.power(10.0, x),
    "rsqrt": _rsqrt,
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "erf": _erf,
    "erfc": _erfc,
    "normcdf": lambda x: 0.5 * _erfc(-np.asarray(x) / math.sqrt(2)),
    "saturatef": lambda x: np.clip(x, 0, 1),
    "sinpi": lambda x: np.sin(np.pi * x),
    "cospi": lambda x: np.cos(np.pi * x),
    "fma": lambda x, y, z: x * y + z,
    "div_rn": np.divide,
    "mul_rn": np.multiply,
    "add_rn": np.add,
    "sub_rn": np.subtract,
    "rcp_rn": np.reciprocal,
    "sqrt_rn": np.sqrt,
    "rsqrt_rn": _rsqrt,
    "fma_rn": lambda x, y, z: x * y + z,
    "fast_dividef": np.divide,
    "fast_expf": np.exp,
    "fast_exp10f": lambda x: np.power(10.0, x),
    "fast_logf": np.log,
    "fast_log2f": np.log2,
    "fast_log10f": np.log10,
    "fast_sinf": np.sin,
    "fast_cosf": np.cos,
    "fast_tanf": np.tan,
    "fast_tanhf": np.tanh,
    "fast_powf": np.power,
}
PREDICATES: dict[str, Callable[..., Any]] = {
    "isnan": np.isnan,
    "isinf": np.isinf,
    "finitef": np.isfinite,
    "isfinited": np.isfinite,
    "signbit": np.signbit,
}
"""Functions that return int32 truth values."""


def install() -> None:
    """Give every libdevice module of this Triton the implementations above."""
    for name in ("libdevice", "cuda.libdevice", "hip.libdevice"):
        try:
            module = importlib.import_module(f"triton.language.extra.{name}")
        except ImportError:  # this Triton was built without that backend
            continue
        _fill(module)


def _fill(module: ModuleType) -> None:
    implemented = {
        **{name: _elementwise(name, fn, None) for name, fn in FUNCTIONS.items()},
        **{name: _elementwise(name, fn, tl.int32) for name, fn in PREDICATES.items()},
    }
    for name, stub in list(vars(module).items()):
        if callable(stub) and getattr(stub, "__module__", None) == module.__name__:
            setattr(module, name, implemented.get(name) or _missing(name))


def _missing(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"libdevice.{name} is not available in interpreter mode: use triton.language instead")

    return refuse


def _elementwise(name: str, fn: Callable[..., Any], result: Any) -> Callable[..., Any]:
    def function(*args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
        tensors = [interpreter_semantic.to_tensor(arg) for arg in (*args, *kwargs.values())]
        scalar = tensors[0].dtype.scalar
        for tensor in tensors:
            if tensor.dtype.scalar not in (tl.float32, tl.float64):
                raise TypeError(f"libdevice.{name} takes fp32 or fp64, not {tensor.dtype.scalar}: convert with .to()")
        with np.errstate(all="ignore"):
            data = np.asarray(fn(*(tensor.handle.data for tensor in tensors)))
        count_flops(data.size)
        return _tensor(data, result or scalar, tensors)

    return function


def _tensor(data: Any, scalar: Any, operands: list[Any]) -> Any:
    kind = {tl.float32: np.float32, tl.float64: np.float64, tl.int32: np.int32}[scalar]
    shaped = any(operand.type.is_block() for operand in operands)
    type_ = tl.block_type(scalar, list(data.shape)) if shaped else scalar
    return tl.tensor(TensorHandle(data.astype(kind), scalar), type_)
