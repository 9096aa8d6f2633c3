# SPDX-License-Identifier: Apache-2.0
"""Compiles a reference with `torch.compile`, and records what one call of it would run on a GPU.

The first call compiles; the second one goes through the code that Inductor has written, with stand-ins for its kernels.
What it does is a list of calls: of torch's ops, on tensors without data, and of Triton kernels. Breaks between compiled
graphs are part of the list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.codecache import PyCodeCache
from torch._inductor.runtime.triton_heuristics import GridExpr
from torch._subclasses.fake_tensor import FakeTensorMode

from verl_kernel.env.inductor.pretended_gpu import replace_members
from verl_kernel.env.ops.dispatch_modes import DispatchMode


@dataclass(frozen=True)
class OpCall:
    """A call of a torch op."""

    op: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any


@dataclass(frozen=True)
class Configuration:
    """A way to launch a kernel, of which Inductor takes the fastest."""

    blocks: Mapping[str, int]
    """Constants of the kernel."""
    warps: int
    stages: int
    grid: tuple[int, ...]


@dataclass(frozen=True)
class KernelCall:
    """A launch of a Triton kernel."""

    kernel: Any
    """The jit function."""
    arguments: Mapping[str, Any]
    """By name, without the constants of a configuration."""
    configurations: tuple[Configuration, ...]


@dataclass
class Recording:
    """What one call of a compiled program does."""

    calls: list[OpCall | KernelCall] = field(default_factory=list)
    graphs: int = 0
    """Number of compiled graphs that ran."""
    output: Any = None


class _Recorder(DispatchMode):
    """Adds each op to a recording."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recording = recording

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Return True: torch's compiler does not compile under any other mode."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.namespace != "prim":  # questions about a tensor, such as its device
            self._recording.calls.append(OpCall(func, args, kwargs or {}, result))
        return result


class CompiledProgram:
    """Stands in for Inductor's kernels, and for the functions with which its code makes tensors.

    There is one of it in a process.
    """

    def __init__(self) -> None:
        self._recording: Recording | None = None
        replace_members(
            torch._C._dynamo.guards,
            _empty_strided_cuda=_empty_strided,
            _reinterpret_tensor=_reinterpreted,
            assert_size_stride=_unchecked,
            assert_alignment=_unchecked,
        )
        replace_members(torch.cuda, _DeviceGuard=lambda index: _Graph(self._begin_graph))
        replace_members(AsyncCompile, triton=lambda _, name, source, device_str="": self._kernel(name, source))

    def record(self, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], mode: FakeTensorMode) -> Recording:
        """Compile a model and record a call of it.

        Args:
            model: the model, whose tensors are of `mode`.
            args: its positional arguments.
            kwargs: its keyword arguments.
            mode: makes tensors without data.
        """
        compiled: Any = torch.compile(model)
        with torch.no_grad(), mode:
            compiled(*args, **kwargs)
            self._recording = recording = Recording()
            try:
                with _Recorder(recording):
                    recording.output = compiled(*args, **kwargs)
            finally:
                self._recording = None
        return recording

    def _kernel(self, name: str, source: str) -> _Kernel:
        return _Kernel(getattr(PyCodeCache.load(source), name), self._launch)

    def _begin_graph(self) -> None:
        if self._recording is not None:
            self._recording.graphs += 1

    def _launch(self, call: KernelCall) -> None:
        if self._recording is not None:
            self._recording.calls.append(call)


class _Graph:
    """Stands in for the guard that Inductor's code enters once for each graph."""

    def __init__(self, begin: Callable[[], None]) -> None:
        self._begin = begin

    def __enter__(self) -> None:
        self._begin()

    def __exit__(self, *exc: object) -> None: ...


class _Kernel:
    """Stands in for one of Inductor's kernels: launches become records."""

    def __init__(self, tuner: Any, launch: Callable[[KernelCall], None]) -> None:
        self._tuner, self._launch = tuner, launch

    def run(self, *args: Any, stream: Any, **named: Any) -> None:
        """Record a launch, with all configurations that Inductor would time."""
        kernel, configs = self._tuner.fn, self._tuner.configs
        names = [name for name in kernel.arg_names if name not in configs[0].kwargs]
        arguments = {**dict(zip(names, args, strict=False)), **named}
        sizes = {name: value for name, value in arguments.items() if not isinstance(value, torch.Tensor)}
        ways = (
            Configuration(config.kwargs, config.num_warps, config.num_stages, self._grid(config, sizes))
            for config in configs
        )
        self._launch(KernelCall(kernel, arguments, tuple(ways)))

    def _grid(self, config: Any, sizes: Mapping[str, Any]) -> tuple[int, ...]:
        grid: tuple[int, ...] = GridExpr.from_meta(self._tuner.inductor_meta, config).eval_slow(
            {**sizes, **config.kwargs}
        )
        return grid


def _unchecked(*args: Any) -> None: ...


def _empty_strided(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device="cuda")


def _reinterpreted(tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int = 0) -> torch.Tensor:
    return torch.as_strided(tensor, size, stride, tensor.storage_offset() + offset)
