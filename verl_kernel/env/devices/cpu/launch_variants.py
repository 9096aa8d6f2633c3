# SPDX-License-Identifier: Apache-2.0
"""Describes launches under the interpreter, so that a compiler elsewhere can compile what they would run.

Arguments are told as far as Triton's compiler distinguishes them; each launch that needs a kernel of its own is
described once.
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from triton.runtime.errors import OutOfResources
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import ConstexprFunction, _normalize_ty

from verl_kernel.env.compilation.description import Description, Function, Launch, Unit
from verl_kernel.env.devices.compiled.values import Values
from verl_kernel.env.devices.cpu.language import triton_objects
from verl_kernel.env.devices.cpu.language.kernel_language import KernelText
from verl_kernel.env.static_check import candidate_code

_SETTINGS = ("do_not_specialize", "do_not_specialize_on_alignment", "noinline", "debug")
TextOf = Callable[[Any], KernelText | None]
"""The checked text of a function under `@triton.jit`; None for one of Triton's own."""


class LaunchVariants:
    """The launches of this process that need kernels of their own; notes nothing until it is switched on."""

    def __init__(self) -> None:
        self.is_on = False
        self.ruled_out: frozenset[str] = frozenset()
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._functions: list[Function] = []
        self._kept: list[tuple[Any, ...]] = []
        """Objects that functions use, so that their ids stay theirs."""
        self._numbers: dict[Any, int] = {}
        self._launches: dict[str, Launch] = {}
        self._digests: dict[str, str] = {}
        self._tried: set[str] = set()
        self._latest: Launch | None = None

    def note(self, text: KernelText, args: tuple[Any, ...], options: Mapping[str, Any], text_of: TextOf) -> str:
        """Describe a launch; its digest, which is the same for launches that share a kernel.

        Args:
            text: the kernel.
            args: positional arguments.
            options: keyword arguments, those that are no parameters included.
            text_of: gives the text of other functions that the kernel uses.
        """
        launch, digest = self._named(text, args, options, text_of)
        self._launches.setdefault(digest, launch)
        return digest

    def attempt(self, text: KernelText, args: tuple[Any, ...], options: Mapping[str, Any], text_of: TextOf) -> str:
        """Likewise for a configuration that an autotuner tries; "", for it is no launch of the program's.

        Raises:
            OutOfResources: it is ruled out.
        """
        _, digest = self._named(text, args, options, text_of)
        self._tried.add(digest)
        if digest in self.ruled_out:
            raise OutOfResources(1, 0, "what a multiprocessor has")
        return ""

    def latest(self) -> Unit:
        """The launch that was noted or tried last, by itself."""
        assert self._latest is not None  # one has begun
        return Description(self._functions, ()).unit(self._latest)

    def description(self) -> Description:
        """All of them."""
        tuned = [digest for digest in self._launches if digest in self._tried]
        return Description(self._functions, list(self._launches.values()), tuned)

    def _named(
        self, text: KernelText, args: tuple[Any, ...], options: Mapping[str, Any], text_of: TextOf
    ) -> tuple[Launch, str]:
        self._latest = launch = _Values(self, text_of).launch(text, args, options)
        known = repr(launch)
        if known not in self._digests:
            self._digests[known] = Description(self._functions, ()).unit(launch).digest()
        return launch, self._digests[known]

    def number(self, text: KernelText, values: _Values, is_constant: bool) -> int:
        """Number of a function, as its names stand now."""
        named = text.names()
        used = tuple(named.values())
        key = (id(text), tuple(map(id, used)))
        if key not in self._numbers:
            self._kept.append(used)
            self._numbers[key] = number = len(self._functions)
            self._functions.append(_function(text, {}, is_constant))
            uses = {name: values.used(value) for name, value in named.items() if not _is_builtin(name, value)}
            self._functions[number] = _function(text, uses, is_constant, values)
        return self._numbers[key]


VARIANTS = LaunchVariants()
"""This process's."""


class _Values(Values):
    """Those of launches in the interpreter."""

    def __init__(self, variants: LaunchVariants, text_of: TextOf) -> None:
        self._variants, self._text_of = variants, text_of

    def launch(self, text: KernelText, args: tuple[Any, ...], options: Mapping[str, Any]) -> Launch:
        names = text.function.__code__.co_varnames[: text.function.__code__.co_argcount]
        constants = {name for name, mark in _marks(text).items() if mark == "constexpr"}
        positional = [self.passed(value, name in constants) for name, value in zip(names, args, strict=False)]
        named = {name: self.passed(item, name in constants) for name, item in options.items() if name in names}
        others = {name: self.used(value) for name, value in options.items() if name not in names}
        return Launch(self._variants.number(text, self, is_constant=False), positional, named, others)

    def path(self, value: Any) -> tuple[str, str] | None:
        return triton_objects.path(value)

    def number(self, value: Any) -> int | None:
        is_constant = isinstance(value, ConstexprFunction)
        text = self._text_of(value) if is_constant or isinstance(value, InterpretedFunction) else None
        return None if text is None else self._variants.number(text, self, is_constant)


def _function(text: KernelText, uses: dict[str, Any], is_constant: bool, values: _Values | None = None) -> Function:
    node = candidate_code.definition(text.function)
    if node is None:
        raise LookupError(f"{text.function.__name__} has no definition in the source")
    parameters = inspect.signature(text.function).parameters.values()
    given = {item.name: item.default for item in parameters if item.default is not item.empty}
    defaults = {} if values is None else {name: values.used(value) for name, value in given.items()}
    settings = {} if is_constant else {name: text.settings.get(name) for name in _SETTINGS}
    settings = {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()}
    return Function(node.name, node.lineno, is_constant, _marks(text), defaults, settings, uses)


def _marks(text: KernelText) -> dict[str, str]:
    given: Mapping[str, Any] = text.kernel.__annotations__
    return {name: str(_normalize_ty(mark)) for name, mark in given.items() if name != "return"}


def _is_builtin(name: str, value: Any) -> bool:
    """Whether it is Python's own under its own name, by which the compiler knows it or not at all."""
    return callable(value) and getattr(builtins, name, None) is value
