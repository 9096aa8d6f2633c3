# SPDX-License-Identifier: Apache-2.0
"""Values that are not known, under Triton's interpreter.

Their handles are marked, hold zeros, and mark whatever is computed from them. A kernel that branches on one, or counts
to it, cannot be followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from verl_kernel.env.true_size.dataless import AddressSpace

_MARK = "unknown"
_MEMORY = ("create_masked_load", "create_masked_store", "create_atomic_rmw", "create_atomic_cas")
_CHECKS = ("create_assert", "create_assume")
_OPS = ("binary_op", "unary_op", "ternary_op", "cast_impl")


def is_unknown(value: Any) -> bool:
    """Whether a handle holds what is not known."""
    return isinstance(value, TensorHandle) and _MARK in value.attr


def mark(value: Any) -> Any:
    """The same handle or handles, marked."""
    for handle in value if isinstance(value, tuple | list) else (value,):
        if isinstance(handle, TensorHandle):
            handle.attr = {**handle.attr, _MARK: True}
    return value


def install(space: AddressSpace, on_call: Callable[[int], None]) -> None:
    """Wrap the interpreter, around whatever counts (once per process).

    Args:
        space: where it is noted that a kernel cannot be followed.
        on_call: called for each op of the interpreter with the lanes of its result.
    """
    names = {name for name in dir(InterpreterBuilder) if name.startswith("create_")} | set(_OPS)
    for name in sorted(names - {*_MEMORY, *_CHECKS}):
        setattr(InterpreterBuilder, name, _marking(getattr(InterpreterBuilder, name), on_call))
    for name in _CHECKS:
        if hasattr(InterpreterBuilder, name):
            setattr(InterpreterBuilder, name, _unless_unknown(getattr(InterpreterBuilder, name)))
    for kind in (interpreter.ReduceOps, interpreter.ScanOps):
        kind.apply_impl = _reducing(kind.apply_impl)
    interpreter._patch_lang_tensor = _refusing(interpreter._patch_lang_tensor, space)


def _marking(original: Callable[..., Any], on_call: Callable[[int], None]) -> Callable[..., Any]:
    @wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        on_call(result.data.size if isinstance(result, TensorHandle) else 1)
        return mark(result) if any(map(is_unknown, _handles(args))) else result

    return method


def _handles(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple | list):
            yield from _handles(value)
        else:
            yield value


def _unless_unknown(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def method(self: Any, condition: Any, *rest: Any) -> Any:
        return None if is_unknown(condition) else original(self, condition, *rest)

    return method


def _reducing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Reductions make new handles from the data of old ones."""

    @wraps(original)
    def apply(self: Any, tensors: Any) -> Any:
        result = original(self, tensors)
        if any(is_unknown(tensor.handle) for tensor in tensors):
            for tensor in result if isinstance(result, tuple | list) else (result,):
                mark(tensor.handle)
        return result

    return apply


def _refusing(original: Callable[..., None], space: AddressSpace) -> Callable[..., None]:
    """Conditions and numbers of Python's own from unknown values are refused."""

    @wraps(original)
    def patch(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        as_number, as_condition, transposed = tensor.__index__, tensor.__bool__, tensor.T.fget

        def index(self: Any) -> Any:
            if is_unknown(self.handle):
                raise space.refuse("a kernel counts to, or indexes by, a number that it has loaded")
            return as_number(self)

        def condition(self: Any) -> Any:
            if is_unknown(self.handle) and self.handle.data.size == 1:
                raise space.refuse("a kernel branches on a value that it has loaded")
            return as_condition(self)

        def transpose(self: Any) -> Any:
            result = transposed(self)
            return tl.tensor(mark(result.handle), result.type) if is_unknown(self.handle) else result

        scope.set_attr(tensor, "__index__", index)
        scope.set_attr(tensor, "__bool__", condition)
        scope.set_attr(tensor, "T", property(transpose))

    return patch
