# SPDX-License-Identifier: Apache-2.0
"""Describes launches, so that a compiler in another process can compile their kernels.

Arguments are described as far as Triton's compiler distinguishes them; launches that share a compiled kernel are
described once.
"""

from __future__ import annotations

import enum
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import torch
import triton.language as tl
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import ConstexprFunction, TensorWrapper
from triton.tools.tensor_descriptor import TensorDescriptor

from verl_kernel.env.compilation.description import Description, Function, LaunchDescription, Unit
from verl_kernel.env.devices.cpu.kernel_source import KernelSource, is_function, library_path

# Values in the description of a launch, as far as Triton's compiler distinguishes them.


_ALIGNMENT = 16
_NARROW, _WIDE = range(-(2**31), 2**31), range(-(2**63), 2**63)
_TENSORS = (torch.Tensor, torch.nn.Parameter)


class Values(ABC):
    """Converts values to JSON."""

    @abstractmethod
    def path(self, value: Any) -> tuple[str, str] | None:
        """Return module and name of a function or class of Triton; None for any other value."""

    @abstractmethod
    def number(self, value: Any) -> int | None:
        """Return the number of a function that kernels can call; None for any other value."""

    def constant(self, value: Any) -> Any:
        """Describe the value in a `tl.constexpr`."""
        return self._described(value)

    def used(self, value: Any) -> Any:
        """Describe a constant or the value of a name."""
        try:
            return self._described(value)
        except Exception as exc:  # noqa: BLE001  the compiler refuses such a value where a kernel uses it
            return {"absent": f"{type(value).__name__}: {exc}"[:200]}

    def passed(self, value: Any, is_constant: bool) -> Any:
        """Describe an argument of a launch."""
        if is_constant:
            return self.used(value)
        if type(value) in _TENSORS or (type(value) is TensorWrapper and type(value.base) in _TENSORS):
            return {"tensor": {"dtype": _last(value.dtype), "aligned": value.data_ptr() % _ALIGNMENT == 0}}
        if type(value) is TensorDescriptor and type(value.base) in _TENSORS:
            shape = [int(size) for size in value.block_shape]
            return {"descriptor": {"dtype": _last(value.base.dtype), "block_shape": shape}}
        if type(value) is int:
            return _representative(value)
        if type(value) is float:
            return {"float": "0.5"}
        if isinstance(value, tuple):
            return _tuple(value, [self.passed(item, False) for item in value])
        return True if type(value) is bool else self.used(value)

    def _described(self, value: Any) -> Any:
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return {"float": repr(value)}
        if isinstance(value, tuple):
            return _tuple(value, list(map(self._described, value)))
        if type(value) is tl.constexpr:
            return {"constexpr": self.constant(value.value)}
        if isinstance(value, tl.core.pointer_type):
            return {"dtype": f"*{value.element_ty.name}"}
        if isinstance(value, tl.dtype):
            return {"dtype": value.name}
        return {"torch": _last(value)} if isinstance(value, torch.dtype) else self._object(value)

    def _object(self, value: Any) -> Any:
        if isinstance(value, ModuleType):
            return {"module": value.__name__}
        if isinstance(value, enum.Enum):
            return {"member": [type(value).__module__, type(value).__qualname__, value.name]}
        if path := self.path(value):
            return {"member": list(path)}
        home = getattr(value, "__module__", None)
        if home in ("math", "builtins") and callable(value):
            return {"member": [home, value.__name__]}
        if (number := self.number(value)) is not None:
            return {"function": number}
        if isinstance(value, type):
            return {"class": value.__name__}  # allowed in an annotation; in a body the compiler refuses it
        raise TypeError("nothing that a compiler could be given")


def _representative(value: int) -> int:
    """Return an integer that Triton's compiler treats like this one: of equal width, 16-divisibility, and 1 as 1."""
    if value == 1:
        return 1
    is_even = value % _ALIGNMENT == 0
    smallest = 0 if value in _NARROW else 2**40 if value in _WIDE else 2**63
    return smallest + (_ALIGNMENT if is_even else 3)


def _tuple(value: tuple[Any, ...], values: list[Any]) -> dict[str, Any]:
    fields = getattr(type(value), "_fields", None)
    return {"tuple": {"name": type(value).__name__, "fields": fields and list(fields), "values": values}}


def _last(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


@dataclass(frozen=True)
class DescribedLaunch:
    """The description of a launch."""

    launch: LaunchDescription
    """The launch, with functions numbered in this process."""
    unit: Unit
    """The launch with only the functions that it needs."""
    digest: str
    """Digest of `unit`, equal for launches that share a compiled kernel."""


class Descriptions:
    """Descriptions of the launches of this process, one for each distinct kernel."""

    def __init__(self) -> None:
        self.is_on = False
        """Whether launches are recorded for a compiler of the true target."""
        self.ruled_out: frozenset[str] = frozenset()
        """Digests of configurations that an autotuner skips."""
        self._sources: dict[int, KernelSource] = {}
        """Sources by the id of the decorator's result, which the source keeps alive."""
        self._constants: dict[int, ConstexprFunction] = {}
        """Wrappers by the id of a function under `@tl.constexpr`, which they keep alive."""
        self._functions: list[Function] = []
        self._alive: list[Any] = []
        """Objects that functions use, kept alive so that their ids are not reused."""
        self._numbers: dict[Any, int] = {}
        self._launches: dict[str, LaunchDescription] = {}
        self._described: dict[str, DescribedLaunch] = {}
        """Descriptions by the text of the launch."""
        self._tried: set[str] = set()

    def describe(self, kernel: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> DescribedLaunch:
        """Describe a launch.

        Args:
            kernel: result of `@triton.jit`.
            args: positional arguments.
            options: keyword arguments, including launch options that are not parameters.

        Raises:
            NotTriton: the candidate's source does not define the kernel.
        """
        launch = _Values(self).launch(self.source(kernel), args, options)
        text = repr(launch)
        if text not in self._described:
            unit = Description(self._functions, ()).unit(launch)
            self._described[text] = DescribedLaunch(launch, unit, unit.digest())
        return self._described[text]

    def note(self, described: DescribedLaunch, is_tried: bool) -> None:
        """Record a launch of the program, or a configuration that an autotuner tries, if `is_on`.

        Raises:
            OutOfResources: the configuration is ruled out.
        """
        if self.is_on and is_tried:
            self._tried.add(described.digest)
            if described.digest in self.ruled_out:
                raise OutOfResources(1, 0, "what a multiprocessor has")
        elif self.is_on:
            self._launches.setdefault(described.digest, described.launch)

    def all(self) -> Description:
        """Return the description of all recorded launches."""
        tuned = [digest for digest in self._launches if digest in self._tried]
        return Description(self._functions, list(self._launches.values()), tuned)

    def source(self, kernel: Any) -> KernelSource:
        """Return the source of a decorator's result (raises NotTriton)."""
        if id(kernel) not in self._sources:
            self._sources[id(kernel)] = KernelSource(kernel)
        return self._sources[id(kernel)]

    def constant(self, function: FunctionType) -> ConstexprFunction:
        """Wrap a function under `@tl.constexpr` as if it were under `@triton.constexpr_function`."""
        return self._constants.setdefault(id(function), ConstexprFunction(function))

    def number(self, kernel: Any, values: _Values) -> int:
        """Return the number of a function with the present values of its names and of those of its callees."""
        reached = self._reached(kernel)
        key = tuple((id(source), *map(id, named.values())) for source, named in reached)
        if key not in self._numbers:
            self._alive.append(reached)
            source, named = reached[0]
            self._numbers[key] = number = len(self._functions)
            self._functions.append(_function(source, {}, {}))  # registered first: the function may be recursive
            uses = {name: values.used(value) for name, value in named.items()}
            self._functions[number] = _function(source, uses, _defaults(source, values))
        return self._numbers[key]

    def _reached(self, kernel: Any) -> list[tuple[KernelSource, dict[str, Any]]]:
        """Return a function and all its possible callees, each with the values of its names."""
        sources: dict[int, tuple[KernelSource, dict[str, Any]]] = {}
        waiting = [kernel]
        while waiting:
            source = self.source(waiting.pop(0))
            if id(source) not in sources:
                sources[id(source)] = source, (named := source.names())
                waiting += [value for value in named.values() if is_function(value) and not library_path(value)]
        return list(sources.values())


class _Values(Values):
    """Converts values of launches, numbering functions in these descriptions."""

    def __init__(self, descriptions: Descriptions) -> None:
        self._descriptions = descriptions

    def launch(self, source: KernelSource, args: tuple[Any, ...], options: Mapping[str, Any]) -> LaunchDescription:
        names = [item.name for item in source.kernel.params]
        constants = {item.name for item in source.kernel.params if item.is_constexpr}
        positional = [self.passed(value, name in constants) for name, value in zip(names, args, strict=False)]
        named = {name: self.passed(item, name in constants) for name, item in options.items() if name in names}
        extra_options = {name: self.used(value) for name, value in options.items() if name not in names}
        return LaunchDescription(self._descriptions.number(source.kernel, self), positional, named, extra_options)

    def path(self, value: Any) -> tuple[str, str] | None:
        return library_path(value)

    def number(self, value: Any) -> int | None:
        return self._descriptions.number(value, self) if is_function(value) else None

    def constant(self, value: Any) -> Any:
        """Describe the value in a `tl.constexpr`: also a Python function, which kernels call to compute constants."""
        is_own = type(value) is FunctionType and library_path(value) is None
        return {"function": self.number(self._descriptions.constant(value))} if is_own else super().constant(value)


def _function(source: KernelSource, uses: dict[str, Any], defaults: dict[str, Any]) -> Function:
    node = source.node
    return Function(node.name, node.lineno, source.is_constant, source.marks, defaults, source.settings, uses)


def _defaults(source: KernelSource, values: _Values) -> dict[str, Any]:
    parameters = inspect.signature(source.function).parameters.values()
    return {item.name: values.used(item.default) for item in parameters if item.default is not item.empty}
