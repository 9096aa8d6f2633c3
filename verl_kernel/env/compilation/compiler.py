# SPDX-License-Identifier: Apache-2.0
"""Triton's compiler for one target, in a process without a GPU.

Import this module only there: it lets Triton believe in the target, and gives the name `torch` to an empty module, of
which Triton's specialisation asks for `Tensor` only, so that the process goes without 250 MB and a second of torch.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from verl_kernel.env.compilation import refusals
from verl_kernel.env.compilation.description import Unit
from verl_kernel.env.compilation.outcome import Outcome, Refusal, Resources
from verl_kernel.env.compilation.rebuilding import Rebuilt, Tensor
from verl_kernel.env.compilation.targets import Target
from verl_kernel.env.compilation.texts import definitions

_WARP = 32
_REGISTERS, _SPILLS = re.compile(r"Used (\d+) registers"), re.compile(r"(\d+) bytes spill stores")


class TargetDriver:
    """Answers what Triton asks about the device while it compiles."""

    def __init__(self, target: Target) -> None:
        self._target = GPUTarget("cuda", target.capability, _WARP)
        self.utils = SimpleNamespace(get_device_properties=lambda device: {})

    def get_current_target(self) -> Any:
        """The target."""
        return self._target

    def get_current_device(self) -> int:
        """The only one."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """There is none."""
        return 0


class _NoTorch(ModuleType):
    """Has a class for every name, as annotations of kernels need one."""

    Tensor = Tensor

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def prepare(target: Target) -> None:
    """Let this process compile for a target, and load what a first compilation loads (once).

    Raises:
        Exception: Triton cannot compile for it.
    """
    triton.knobs.nvidia.dump_ptxas_log = True  # it is the only one to tell how many registers a kernel needs
    driver.set_active(TargetDriver(target))
    with contextlib.redirect_stdout(io.StringIO()):
        compile_trial_kernel()


def compile_trial_kernel() -> Any:
    """Compile a small kernel by the active driver, in a process without torch."""
    sys.modules.setdefault("torch", _NoTorch("torch"))
    for module in (triton.runtime.cache, triton.compiler.compiler):
        if hasattr(module, "triton_key"):  # half a gigabyte is hashed for a cache that nobody else reads
            module.triton_key = lambda: version("triton")
    from verl_kernel.env.compilation.trial_kernel import copy_kernel

    return copy_kernel.warmup(Tensor("float32", True), Tensor("float32", True), 3, BLOCK=64, grid=(1,))


class Compiler:
    """Compiles launches of one source.

    Args:
        file: that holds it.

    Raises:
        SyntaxError, ValueError: it is not Python.
    """

    def __init__(self, file: str) -> None:
        source = Path(file).read_bytes().decode("utf-8", "surrogatepass")
        self._file, self._definitions = file, definitions(source)

    def compile(self, unit: Unit) -> Outcome:
        """Compile one launch down to machine code."""
        begun = time.perf_counter()
        result = self._compiled(unit)
        return Outcome(result, time.perf_counter() - begun)

    def _compiled(self, unit: Unit) -> Resources | Refusal:
        functions: list[Any] = []
        log = io.StringIO()
        try:
            rebuilt = Rebuilt(unit, self._definitions, self._file)
            functions = rebuilt.functions
            with contextlib.redirect_stdout(log):
                kernel = functions[0].warmup(*rebuilt.positional, grid=(1,), **rebuilt.named, **rebuilt.options)
            return _resources(kernel.metadata._asdict(), log.getvalue())
        except Exception as exc:  # noqa: BLE001  whatever stops the compiler is its refusal
            return refusals.refusal(exc, functions)


def _resources(metadata: Mapping[str, Any], log: str) -> Resources:
    registers, spills = _REGISTERS.search(log), _SPILLS.search(log)
    return Resources(
        warps=metadata["num_warps"],
        shared=metadata["shared"],
        registers=None if registers is None else int(registers[1]),
        spills=None if spills is None else int(spills[1]),
        ctas=metadata.get("num_ctas", 1),
        tensor_columns=metadata.get("tmem_size") or 0,
    )
