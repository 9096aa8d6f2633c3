# SPDX-License-Identifier: Apache-2.0
"""A snapshot of the functions that a candidate must not replace, and of the hooks that it must not set.

It is taken in the zygote, before any candidate is loaded. Objects are compared by identity, so that no `__eq__` of a
candidate is called.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import json
import operator
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import compress
from types import FunctionType, ModuleType
from typing import Any

import torch

_LIBRARIES: tuple[Any, ...] = (
    *(builtins, time, json, json.encoder, contextlib, torch.overrides, torch.overrides.TorchFunctionMode),
    *(torch.utils._python_dispatch, torch.utils._python_dispatch.TorchDispatchMode, torch._ops.OpOverload),
)
_PACKAGES = ("verl_kernel.env", "triton.language.core", "triton.language.standard", "triton.runtime")
"""The watched packages: the code that counts and the code that is counted. Functions of torch are not watched, since
the recorder sees ops on a level below them."""
_MAP, _VARS, _IS_NOT, _PARTS = map, vars, operator.is_not, gc.get_referents
"""References of this module to builtins, which a candidate may replace."""
_CODE, _DEFAULTS = operator.attrgetter("__code__"), operator.attrgetter("__defaults__")
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_SIGNALS = [number for number in signal.valid_signals() if number not in (signal.SIGKILL, signal.SIGSTOP)]


class Snapshot:
    """The watched functions and hooks at the time of construction."""

    def __init__(self) -> None:
        owners = [(owner, _callables(owner)) for owner in _owners()]
        own = (content for owner, content in owners if _name(owner).startswith(_PACKAGES[0]) or isinstance(owner, type))
        functions = {id(f): f for content in own for f in content.values() if isinstance(f, FunctionType)}
        self._owners = [(owner, tuple(content), tuple(content.values())) for owner, content in owners]
        self._functions = tuple(functions.values())
        self._codes = tuple(_MAP(_CODE, self._functions))
        self._defaults = tuple(_MAP(_DEFAULTS, self._functions))
        self._parts = _PARTS(*self._functions)
        self._signals = [(number, signal.getsignal(number)) for number in _SIGNALS]
        # Hooks by which a candidate's code could run outside of a forward, where no recorder is active.
        self._callbacks = list(gc.callbacks)
        self._modes = _modes()

    def changes(self) -> Iterator[str]:
        """Yield a sentence for each function that was replaced and each hook that was set since then."""
        for owner, names, values in self._owners:
            now = _MAP(_VARS(owner).get, names)
            for name in _differing(names, now, values):
                yield f"{_name(owner)}.{name} was replaced"  # check: attributes-are-unchanged
        # A function's parts begin with its code. Python calls the audit hook for each look at a code, once for this.
        parts = _PARTS(*self._functions)
        is_same = len(parts) == len(self._parts) and not _differing(parts, parts, self._parts)
        for field, before in () if is_same else ((_CODE, self._codes), (_DEFAULTS, self._defaults)):
            for function in _differing(self._functions, _MAP(field, self._functions), before):
                yield f"the code of {function.__qualname__} was replaced"  # check: code-is-unchanged
        yield from self._hooks()

    def _hooks(self) -> Iterator[str]:
        profile: Callable[[], Any] = getattr(threading, "getprofile", lambda: None)
        if any(get() is not None for get in (sys.gettrace, sys.getprofile, profile)):
            yield "a trace or profile function was set"  # check: no-trace-function
        for number, handler in self._signals:
            if signal.getsignal(number) is not handler:
                yield f"a handler of {signal.Signals(number).name} was set"  # check: no-signal-handler
        if any(map(any, map(signal.getitimer, _TIMERS))):
            yield "an interval timer was set"  # check: no-interval-timer
        if len(gc.callbacks) != len(self._callbacks):
            yield "a callback of the garbage collector was set"  # check: no-collector-callback
        if _modes() != self._modes:
            yield "a mode of torch was left on or taken off"  # check: no-torch-mode
        if threading.active_count() > 1:
            yield "a thread was started"  # check: no-thread


def _differing(names: Iterable[Any], now: Iterable[Any], before: Iterable[Any]) -> list[Any]:
    """Return the names whose values are no longer the same objects.

    The comparison runs in C (`map`, `compress`), since each inspected forward compares thousands of objects.
    """
    return [*compress(names, _MAP(_IS_NOT, now, before))]


def _owners() -> list[Any]:
    import triton.language as tl

    heads = tuple(f"{package}." for package in _PACKAGES)
    modules = [module for name, module in list(sys.modules.items()) if f"{name}.".startswith(heads)]
    own = [module for module in modules if isinstance(module, ModuleType)]
    classes = [item for module in own for item in vars(module).values() if isinstance(item, type)]
    inner = [item for item in classes if item.__module__.startswith(_PACKAGES)]
    return list({id(owner): owner for owner in (*_LIBRARIES, tl, *own, *inner)}.values())


def _callables(owner: Any) -> dict[str, Any]:
    kinds = (classmethod, staticmethod, property)
    return {name: value for name, value in vars(owner).items() if callable(value) or isinstance(value, kinds)}


def _modes() -> tuple[int, int]:
    return torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()


def _name(owner: Any) -> str:
    return str(getattr(owner, "__name__", owner))
