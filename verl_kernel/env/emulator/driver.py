# SPDX-License-Identifier: Apache-2.0
"""Lets Triton launch kernels on tensors in host memory: Triton compiles for a GPU, and the emulator runs the PTX."""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import triton
from triton.backends import backends
from triton.backends.compiler import GPUTarget
from triton.runtime import _allocation
from triton.runtime.driver import driver
from triton.runtime.jit import TensorWrapper

from verl_kernel.env.emulator.code import ObjectCache
from verl_kernel.env.emulator.kernel import Buffer, Kernel
from verl_kernel.env.triton_driver import TritonDriver

# Converts a launch's arguments to values of the PTX's parameters.


def flattened(kind: Any, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parameters that an argument becomes, with their types: none for a constant, several for a tuple."""
    if isinstance(kind, tuple):
        for member_kind, item in zip(kind, value, strict=True):
            yield from flattened(member_kind, item)
    elif isinstance(kind, str) and kind.startswith("tensordesc"):
        shape, strides = list(value.shape), list(value.strides)
        # Shapes and strides go twice, as by Triton's own launcher: with the descriptor, and as arguments
        # of their own.
        flags = (value.padding == "nan", value.round_f32_to_tf32)
        yield from (("", item) for item in (value.base, *shape, *strides, *flags, *shape, *strides))
    elif kind != "constexpr":
        yield str(kind), value


_FLOATS = {"fp16": "e", "fp32": "f", "f32": "f", "fp64": "d", "f64": "d"}
"""Formats of `struct` for Triton's types of floats."""


def encoded(kind: str, value: Any) -> Any:
    """Return a float as the bits of its type, as Triton's launchers pass it; other values are returned unchanged."""
    if kind == "bf16":  # Triton's launchers truncate the float32
        return int.from_bytes(struct.pack("<f", value), "little") >> 16
    if kind in _FLOATS:
        return int.from_bytes(struct.pack(f"<{_FLOATS[kind]}", value), "little")
    return value


CAPABILITY = 89
"""Compute capability to compile for: the lowest one with 8-bit floats, so that no instruction is specific to Hopper."""
_ROUNDING_CAPABILITY = 90
"""Compute capability of the oldest GPUs for which Triton rounds to 8-bit floats in one step."""
_ROUNDS_TO_EIGHT = re.compile(r"tt\.fp_to_fp .*f32.* -> .*f8E")
"""A conversion of float32 to 8-bit floats in Triton's intermediate code."""
_WARP = 32
# An H100's, as far as kernels' launch code asks for them.
_PROPERTIES = {
    "max_shared_mem": 232448,
    "multiprocessor_count": 132,
    "max_num_regs": 65536,
    "warpSize": _WARP,
    "sm_clock_rate": 1_755_000,
    "mem_clock_rate": 2_619_000,
    "mem_bus_width": 5120,
}


_REGISTERS = 32
"""Registers that a thread is said to need; only the assembler would know the number, and it does not run."""


class Launcher:
    """The callable with which Triton launches one compiled kernel."""

    def __init__(self, source: Any, metadata: Any) -> None:
        self._signature, self._metadata = list(source.signature.values()), metadata

    def __call__(
        self,
        x: int,
        y: int,
        z: int,
        stream: int,
        function: bytes,
        *further: Any,
    ) -> None:
        """Run the whole grid and return when it has ended."""
        # Triton passes everything by position: its own data, two hooks, and then the kernel's arguments.
        _packed, _launch_metadata, _enter, _leave, *arguments = further
        metadata = self._metadata
        # Blocks of a cluster would have to read each other's shared memory.
        if metadata.num_ctas != 1:
            raise NotImplementedError("the emulator runs no clusters of blocks")
        flat = [
            encoded(kind, value.base if isinstance(value, TensorWrapper) else value)
            for sort, item in zip(self._signature, arguments, strict=True)
            for kind, value in flattened(sort, item)
        ]
        scratch = [
            _scratch(size, align, x * y * z)
            for size, align in (
                (metadata.global_scratch_size, metadata.global_scratch_align),
                (metadata.profile_scratch_size, metadata.profile_scratch_align),
            )
        ]
        tensors = [item for item in (*flat, *scratch) if hasattr(item, "data_ptr")]
        buffers = [Buffer(item.untyped_storage().data_ptr(), item.untyped_storage().nbytes()) for item in tensors]
        values = [item.data_ptr() if hasattr(item, "data_ptr") else item or 0 for item in (*flat, *scratch)]
        # Triton's launchers skip an empty grid.
        if x * y * z:
            ready(function, metadata.num_warps, metadata.shared).launch((x, y, z), values, buffers)


def _scratch(size: int, align: int, blocks: int) -> Any:
    """Allocate memory that a kernel requests beyond its arguments, from the allocator that the program set."""
    return _allocation._allocator.get()(size * blocks, align, 0) if size else None


@functools.lru_cache(maxsize=512)
def ready(ptx: bytes, warps: int, shared: int) -> Kernel:
    """Compile a kernel to native code."""
    return Kernel(ptx.decode(), warps, shared, _cache())


@functools.cache
def _cache() -> ObjectCache:
    """Return the cache of object files, in a folder next to the files that Triton caches."""
    return ObjectCache(Path(triton.knobs.cache.dir) / "emulator")


class EmulatorDriver(TritonDriver):
    """The driver through which Triton uses the emulator."""

    launcher_cls = Launcher

    def __init__(self) -> None:
        super().__init__(
            GPUTarget("cuda", CAPABILITY, _WARP),
            _PROPERTIES,
            "cpu",
            load_binary=lambda name, kernel, shared, device: (None, kernel, _REGISTERS, 0, 1024),
            unload_module=lambda module: None,
        )

    def get_benchmarker(self) -> Callable[..., Sequence[float]]:
        """Return a benchmarker that always reports the same time: an autotuner keeps its first choice."""
        return lambda call, *args, **kwargs: (call(), [1.0, 1.0, 1.0])[1]


def activate() -> None:
    """Make Triton in this process compile to PTX only, and launch through the emulator."""
    change_stages(_own_stages)
    driver.set_active(EmulatorDriver())


def change_stages(change: Callable[..., Any] | None) -> None:
    """Let a function change the stages of Triton's compiler, for each kernel; None: they are Triton's own."""
    if hasattr(triton.knobs.runtime, _HOOK):
        setattr(triton.knobs.runtime, _HOOK, change)
        return
    # Triton 3.5 has no hook: its class of stages gets a subclass.
    plain = next(kind for kind in backends["nvidia"].compiler.__mro__ if kind.__module__.startswith("triton."))
    backends["nvidia"] = replace(backends["nvidia"], compiler=_with_change(plain, change) if change else plain)


_HOOK = "add_stages_inspection_hook"
"""Triton's hook for the stages of its compiler, which Triton 3.5 does not have."""


def _with_change(plain: Any, change: Callable[..., Any]) -> type:
    """Return a compiler whose stages a function changes."""

    class Changing(plain):  # type: ignore[misc]
        def add_stages(self, stages: Any, options: Any, *language: Any) -> None:
            super().add_stages(stages, options, *language)
            change(self, stages, options, *language, capability=self._parse_arch(options.arch))

        def hash(self) -> str:
            return f"{super().hash()} {change()[1]}"

    return Changing


def _own_stages(
    backend: Any = None, stages: Any = None, options: Any = None, language: Any = None, capability: int = 0
) -> Any:
    """Replace stages: PTX is taken as machine code, and rounding to 8-bit floats takes one step, as on Hopper.

    For older GPUs Triton rounds through a truncated half, which differs by one step for one number in 250. Such a
    kernel's last steps are Hopper's, PTX included: it may store matrices (`stmatrix`), which LLVM has for no older GPU.
    """
    if stages is None:  # Triton asks for the key of its cache
        return "emulator", "emulator: rounds in one step, in PTX for Hopper"

    target = capability

    def lowered(module: Any, metadata: Any) -> Any:
        nonlocal target
        target = _ROUNDING_CAPABILITY if _ROUNDS_TO_EIGHT.search(str(module)) else capability
        return backend.make_llir(module, metadata, options, target)

    stages["llir"] = lowered
    stages["ptx"] = lambda llir, metadata: backend.make_ptx(llir, metadata, options, target)
    # What Triton takes for machine code, and hands to the launcher, is the PTX.
    stages["cubin"] = lambda ptx, metadata: ptx.encode()
    return None
