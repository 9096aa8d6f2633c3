# SPDX-License-Identifier: Apache-2.0
"""Functions that a candidate marks for `torch.library` or `torch.compile`, and calls as what they are.

PyTorch's own would call the candidate from its dispatcher, where no recorder sees which ops it runs. These call it
directly, register nothing, and cost no time: what they name is judged like any other function. PyTorch's decorators for
its compiler would load it, which takes seconds; nothing here is compiled by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper, wraps
from typing import Any

import torch

Function = Callable[..., Any]


def install(program_asks: Callable[[], bool]) -> None:
    """Give programs operators that are their functions, and libraries PyTorch's own; call this once per process."""
    for name, ours in (("custom_op", _named), ("triton_op", _named), ("wrap_triton", lambda kernel, /: kernel)):
        setattr(torch.library, name, _for_programs(getattr(torch.library, name), ours, program_asks))
    for name in ("disable", "allow_in_graph"):
        setattr(torch.compiler, name, _for_programs(getattr(torch.compiler, name), _unchanged, program_asks))


def _for_programs(original: Function, ours: Function, program_asks: Callable[[], bool]) -> Function:
    @wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        return (ours if program_asks() else original)(*args, **kwargs)

    return function


def _unchanged(fn: Function | None = None, /, **options: Any) -> Any:
    return (lambda function: function) if fn is None else fn


def _named(name: str, fn: Function | None = None, /, **options: Any) -> Any:
    return NamedOp if fn is None else NamedOp(fn)


class NamedOp:
    """A function under an operator's name; the kernel registered for a GPU stands in its place."""

    def __init__(self, function: Function) -> None:
        self._function = function
        update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self._function(*args, **kwargs)

    def register_kernel(self, device_types: str | Sequence[str] | None, fn: Function | None = None, /) -> Any:
        """Register another function for types of devices; one for GPUs, or for all devices, is used from now on."""
        types = [device_types] if device_types is None or isinstance(device_types, str) else device_types

        def register(function: Function) -> Function:
            if None in types or "cuda" in types:
                self._function = function
            return function

        return register if fn is None else register(fn)

    def register_fake(self, fn: Function, /) -> Function:
        """Return the function: nothing here runs on tensors without data."""
        return fn

    def register_autograd(self, backward: Function, /, **options: Any) -> None:
        """Do nothing: no trial asks for gradients of a named operator."""
