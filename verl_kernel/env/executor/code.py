# SPDX-License-Identifier: Apache-2.0
"""A kernel's native code as bytes, which one process makes and others load."""

from __future__ import annotations

import pickle
from collections.abc import Collection
from dataclasses import dataclass, replace

import llvmlite.binding as llvm

from verl_kernel.env.executor import jit
from verl_kernel.env.executor.flow import origins
from verl_kernel.env.executor.lowering.function import Module, module
from verl_kernel.env.executor.ptx.parser import parse
from verl_kernel.env.executor.ptx.program import Program
from verl_kernel.env.executor.work import steps


@dataclass(frozen=True)
class Code:
    """What a launch needs, without the text that it was made of."""

    program: Program
    module: Module
    native: bytes
    """An object file."""
    warps: int
    """Of a block."""
    shared_bytes: int
    """Of a block, as the compiler says."""
    kinds: dict[int, origins.Kind]
    """`origins.stores` of the program."""
    known: steps.Known
    """`steps.known_of` it."""

    def to_bytes(self) -> bytes:
        """It, for `read`."""
        return pickle.dumps(self, pickle.HIGHEST_PROTOCOL)


def make(ptx: str, warps: int, shared_bytes: int, left_out: Collection[int] | None = None) -> Code:
    """Compile a kernel (arguments as of `Kernel`; raises NotKnown), without some of its stores (`origins.without`)."""
    program = parse(ptx)
    return of(origins.without(program, left_out) if left_out else program, warps, shared_bytes)


def of(program: Program, warps: int, shared_bytes: int) -> Code:
    """As `make`, of a program that is parsed (raises NotKnown)."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    made = module(program, warps)
    bare = replace(made, text="")
    found = (origins.stores(program), steps.known_of(program, bare))
    return Code(program, bare, jit.emitted(made.text), warps, shared_bytes, *found)


def read(data: bytes) -> Code:
    """What `to_bytes` wrote.

    Whoever wrote it decides what this process does, by the native code anyway: read nothing here whose code must not
    run here.
    """
    code = pickle.loads(data)
    if not isinstance(code, Code):
        raise ValueError("this is no code of a kernel")
    origins.remember(code.program, code.kinds)
    steps.remember(code.program, code.known)
    return code
