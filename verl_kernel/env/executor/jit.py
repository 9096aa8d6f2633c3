# SPDX-License-Identifier: Apache-2.0
"""LLVM IR to native code, by llvmlite.

Functions of the library are compiled once in a process, each by itself, and found by their names.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable
from typing import Any

import llvmlite.binding as llvm

from verl_kernel.env.executor.errors import NotKnown
from verl_kernel.env.executor.library.all import text
from verl_kernel.env.executor.library.grid import grid_text
from verl_kernel.env.executor.lowering.writer import Key, symbol
from verl_kernel.env.executor.object_cache import ObjectCache

BLOCK = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32,
    ctypes.c_int64, ctypes.c_int64,
)  # fmt: skip
GRID = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32,
    ctypes.c_int32,
)  # fmt: skip
_FEATURES = "-prefer-256-bit"
_C = frozenset({"memset", "memcpy"})
"""What generated code may call of the C library."""


class Library:
    """Functions of the library that this process has compiled."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._engines: list[Any] = []
        self._known: set[Key] = set()
        engine = compiled(grid_text())
        self._engines.append(engine)
        self.block, self.grid = (engine.get_function_address(name) for name in ("vk_block", "vk_grid"))
        """Addresses of the functions of library/grid.py."""
        llvm.add_symbol("vk_block", self.block)

    def need(self, keys: Iterable[Key], cache: ObjectCache | None = None) -> None:
        """Compile functions, and those that they call first."""
        for key in keys:
            if key not in self._known:
                written, calls = text(key)
                self.need(calls, cache)
                engine = compiled(written, cache)
                self._engines.append(engine)
                llvm.add_symbol(symbol(key), engine.get_function_address(symbol(key)))
                self._known.add(key)


def compiled(written: str, cache: ObjectCache | None = None) -> Any:
    """The engine that holds a module's native code, which lives as long as the engine does.

    Args:
        written: the module.
        cache: where its code is looked for, and kept.

    PTX is optimised already: only variables become values, and code is generated at level 1. Level 0 gives every value
    a place in the stack, which is slower to run by far and overflows it.

    Raises:
        NotKnown: it would call what is not there, or is no code.
    """
    native = None if cache is None else cache.read(written)
    if native is None:
        native = emitted(written)
        if cache is not None:
            cache.keep(written, native)
    return loaded(native)


def emitted(written: str) -> bytes:
    """A module's native code as an object file, for `loaded` of any process on this machine (raises NotKnown)."""
    module, machine = _parsed(written)
    _promote(module, machine)
    return bytes(machine.emit_object(module))


def loaded(native: bytes) -> Any:
    """The engine that holds code that was emitted; functions of the library that it calls must be there."""
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(native))
    engine.finalize_object()
    return engine


def _parsed(written: str) -> tuple[Any, Any]:
    """A module, and the target machine for it (raises NotKnown)."""
    machine = _machine()
    module = llvm.parse_assembly(written)
    module.triple = llvm.get_process_triple()
    module.data_layout = str(machine.target_data)
    _check_symbols(module)
    _check_order(module)
    return module, machine


def _promote(module: Any, machine: Any) -> None:
    """Let variables in memory become values."""
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0))
    passes = llvm.create_new_function_pass_manager()
    passes.add_sroa_pass()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)


def _machine() -> Any:
    """A target machine, which the engine that is made with it takes over."""
    target, cpu, features = _host()
    return target.create_target_machine(cpu=cpu, features=features, opt=1, jit=True)


@functools.cache
def _host() -> tuple[Any, str, str]:
    """LLVM's target, the processor and its features."""
    features = llvm.get_host_cpu_features().flatten() + f",{_FEATURES}"
    return llvm.Target.from_default_triple(), llvm.get_host_cpu_name(), features


def _check_symbols(module: Any) -> None:
    outside = {item.name for item in module.functions if item.is_declaration}
    missing = {name for name in outside - _C if not name.startswith(("llvm.", "vk_"))}
    if missing:
        raise NotKnown(f"the executor has no definition of {', '.join(sorted(missing))}")


def _check_order(module: Any) -> None:
    """LLVM ends the process where a value is used that is not there; better an error that says so."""
    try:
        module.verify()
    except RuntimeError as exc:
        first = str(exc).strip().partition("\n")[0]
        raise NotKnown(f"the executor has made wrong code of this kernel, which is its own mistake: {first}") from None
