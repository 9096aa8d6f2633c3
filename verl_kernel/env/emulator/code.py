# SPDX-License-Identifier: Apache-2.0
"""Compiles a kernel to native code as bytes, which other processes load."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import pickle
import stat
import tempfile
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from verl_kernel.env.emulator.errors import NotKnown
from verl_kernel.env.emulator.flow import origins
from verl_kernel.env.emulator.library.all import text
from verl_kernel.env.emulator.library.grid import grid_text
from verl_kernel.env.emulator.lowering.function import Module, module
from verl_kernel.env.emulator.lowering.writer import Key, symbol
from verl_kernel.env.emulator.ptx.parser import parse
from verl_kernel.env.emulator.ptx.program import PtxProgram
from verl_kernel.env.emulator.work import steps

# A file begins with the SHA-256 of its code: a write that was cut off must not be executed.
_DIGEST = 32


class ObjectCache:
    """Keeps object files in a folder; all processes that may write there are trusted, as files read there are executed.

    Args:
        folder: the folder of the files; it is created if it does not exist.

    Raises:
        OSError: the folder cannot be created, or another user may write there.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = self._folder.stat()
        # Files read here are executed: a writer to the folder could run code as this user.
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"{folder} holds code that is executed: let its owner alone write there")

    def read(self, ir: str) -> bytes | None:
        """Return the code that `keep` stored for a module; None if there is none or if the file is damaged."""
        try:
            data = self._path(ir).read_bytes()
        except OSError:
            return None
        digest, code = data[:_DIGEST], data[_DIGEST:]
        return code if hashlib.sha256(code).digest() == digest else None

    def keep(self, ir: str, code: bytes) -> None:
        """Store a module's code; a full or missing folder is ignored."""
        with suppress(OSError):
            handle, name = tempfile.mkstemp(dir=self._folder)
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(code).digest() + code)
            # Renamed when complete, so that no reader finds a part of it.
            Path(name).replace(self._path(ir))

    def _path(self, ir: str) -> Path:
        # Another processor or another LLVM would give other code.
        machine = (llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), llvmlite.__version__)
        return self._folder / hashlib.sha256("\n".join((ir, *machine)).encode()).hexdigest()


# Compiles LLVM IR to native code by llvmlite.
#
# Each function of the library is compiled once per process, in a separate module; other modules find it by its name.


BLOCK = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3, *[ctypes.c_int32] * 3, *[ctypes.c_int64] * 2)
"""Type of `vk_block` (library/grid.py)."""
GRID = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 4, ctypes.c_int64, *[ctypes.c_int32] * 2)
"""Type of `vk_grid`."""
# Vectors of 512 bits where the host has them: a register of a warp is one of 1,024.
_FEATURES = "-prefer-256-bit"
_C = frozenset({"memset", "memcpy"})
"""Functions of the C library that generated code may call."""


class Library:
    """Holds the functions of the library that this process has compiled."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        # The engines hold the code that is called: they live as long as this process.
        self._engines: list[Any] = []
        self._compiled: set[Key] = set()
        # The scheduler comes first: it is part of every launch.
        engine = compiled(grid_text())
        self._engines.append(engine)
        self.block, self.grid = (engine.get_function_address(name) for name in ("vk_block", "vk_grid"))
        """Addresses of the functions defined in library/grid.py."""
        llvm.add_symbol("vk_block", self.block)

    def need(self, keys: Iterable[Key], cache: ObjectCache | None = None) -> None:
        """Compile functions of the library; the functions that they call are compiled first."""
        for key in keys:
            if key not in self._compiled:
                ir, calls = text(key)
                # An engine looks symbols up when it is finished, so callees must have addresses before.
                self.need(calls, cache)
                engine = compiled(ir, cache)
                self._engines.append(engine)
                llvm.add_symbol(symbol(key), engine.get_function_address(symbol(key)))
                self._compiled.add(key)


def compiled(ir: str, cache: ObjectCache | None = None) -> Any:
    """Return the engine that holds a module's native code; the code lives as long as the engine.

    Args:
        ir: the module's text.
        cache: where object files are looked up and stored.

    Triton's compiler has optimised the PTX already, so only variables in memory are promoted to values, and code is
    generated at level 1. Level 0 puts every value on the stack, which is far slower to run and overflows the stack.

    Raises:
        NotKnown: the code calls a function that does not exist, or is not valid.
    """
    native = None if cache is None else cache.read(ir)
    if native is None:
        native = emitted(ir)
        if cache is not None:
            cache.keep(ir, native)
    return loaded(native)


def emitted(ir: str) -> bytes:
    """Compile a module to an object file that `loaded` accepts in any process on this machine (raises NotKnown)."""
    module, machine = _parsed(ir)
    _promote(module, machine)
    return bytes(machine.emit_object(module))


def loaded(native: bytes) -> Any:
    """Load emitted code into an engine; the library functions that the code calls must be compiled already."""
    # An empty module: all code comes from the object file.
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(native))
    engine.finalize_object()
    return engine


def _parsed(ir: str) -> tuple[Any, Any]:
    """Parse a module; return it and its target machine (raises NotKnown)."""
    machine = _machine()
    module = llvm.parse_assembly(ir)
    module.triple = llvm.get_process_triple()
    module.data_layout = str(machine.target_data)
    _check_symbols(module)
    _check_order(module)
    return module, machine


def _promote(module: Any, machine: Any) -> None:
    """Promote variables in memory to values."""
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0))
    passes = llvm.create_new_function_pass_manager()
    passes.add_sroa_pass()
    for function in module.functions:
        # Each register is written to a variable; as values of SSA form they need no memory.
        if not function.is_declaration:
            passes.run(function, builder)


def _machine() -> Any:
    """Return a target machine; the engine that is made with it becomes its owner."""
    target, cpu, features = _host()
    return target.create_target_machine(cpu=cpu, features=features, opt=1, jit=True)


@functools.cache
def _host() -> tuple[Any, str, str]:
    """Return LLVM's target, the processor's name and its features."""
    features = llvm.get_host_cpu_features().flatten() + f",{_FEATURES}"
    return llvm.Target.from_default_triple(), llvm.get_host_cpu_name(), features


def _check_symbols(module: Any) -> None:
    # The engine would resolve any symbol of this process, so only known functions may be called.
    outside = {item.name for item in module.functions if item.is_declaration}
    missing = {name for name in outside - _C if not name.startswith(("llvm.", "vk_"))}
    if missing:
        raise NotKnown(f"the emulator has no definition of {', '.join(sorted(missing))}")


def _check_order(module: Any) -> None:
    """Check that every value is defined before its use: otherwise LLVM would end the process without an error."""
    try:
        module.verify()
    except RuntimeError as exc:
        first = str(exc).strip().partition("\n")[0]
        raise NotKnown(f"the emulator has made wrong code of this kernel, which is its own mistake: {first}") from None


@dataclass(frozen=True)
class NativeCode:
    """What a launch needs, without the text from which it was compiled."""

    program: PtxProgram
    module: Module
    native: bytes
    """An object file."""
    warps: int
    """Warps of a block."""
    shared_bytes: int
    """Shared memory of a block, as the compiler reports it."""
    kinds: dict[int, origins.Kind]
    """What `origins.stores` returns for the program."""
    facts: steps.KernelFacts
    """What `steps.facts_of` returns for the program."""

    def to_bytes(self) -> bytes:
        """Return this object as bytes, which `read` accepts."""
        return pickle.dumps(self, pickle.HIGHEST_PROTOCOL)


def make(ptx: str, warps: int, shared_bytes: int, left_out: Collection[int] | None = None) -> NativeCode:
    """Compile a kernel (arguments as of `Kernel`) without its stores in `left_out` (raises NotKnown)."""
    program = parse(ptx)
    return of(origins.without(program, left_out) if left_out else program, warps, shared_bytes)


def of(program: PtxProgram, warps: int, shared_bytes: int) -> NativeCode:
    """Compile a parsed program (raises NotKnown)."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    lowered = module(program, warps)
    # The text is long, and a process that loads the code does not need it.
    bare = replace(lowered, text="")
    facts = (origins.stores(program), steps.facts_of(program, bare))
    return NativeCode(program, bare, emitted(lowered.text), warps, shared_bytes, *facts)


def read(data: bytes) -> NativeCode:
    """Load what `to_bytes` returned.

    The bytes decide what this process executes, as a pickle and as native code: read only bytes from a process that is
    trusted to run code here.
    """
    code = pickle.loads(data)
    if not isinstance(code, NativeCode):
        raise ValueError("this is no code of a kernel")
    # Both are found by program: what another process found is not computed again.
    origins.remember(code.program, code.kinds)
    steps.remember(code.program, code.facts)
    return code
