# SPDX-License-Identifier: Apache-2.0
"""LLVM IR to native code, by llvmlite."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm

from verl_kernel.env.executor.errors import NotKnown

_FEATURES = "-prefer-256-bit"
_PROVIDED = frozenset({"memset", "memcpy", "fmod", "fmodf"})
"""Symbols outside of the module that the C library has."""


@dataclass(eq=False)
class Code:
    """Native code of a module; it lives as long as this does."""

    engine: Any
    block: int
    grid: int
    """Addresses of the functions `block` and `grid` (library/grid.py)."""


@functools.cache
def _machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten() + f",{_FEATURES}"
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=1, jit=True)


def compiled(text: str) -> Code:
    """Compile a module (raises NotKnown where it would call what is not there).

    PTX is optimised already: only variables become values, and code is generated at level 1. Level 0 gives every value
    a place in the stack, which is slower to run by far and overflows it.
    """
    machine = _machine()
    module = llvm.parse_assembly(text)
    module.triple = llvm.get_process_triple()
    module.data_layout = str(machine.target_data)
    _check_symbols(module)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0))
    passes = llvm.create_new_function_pass_manager()
    passes.add_sroa_pass()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    engine = llvm.create_mcjit_compiler(module, _own_machine())
    engine.finalize_object()
    return Code(engine, engine.get_function_address("block"), engine.get_function_address("grid"))


def _own_machine() -> Any:
    """A target machine for one engine, which takes it over."""
    return _machine.__wrapped__()


def _check_symbols(module: Any) -> None:
    outside = {item.name for item in module.functions if item.is_declaration and not item.name.startswith("llvm.")}
    if missing := outside - _PROVIDED:
        raise NotKnown(f"the executor has no definition of {', '.join(sorted(missing))}")


BLOCK = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32,
    ctypes.c_int64, ctypes.c_int64,
)  # fmt: skip
GRID = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32,
    ctypes.c_int32,
)  # fmt: skip
