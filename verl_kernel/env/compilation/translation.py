# SPDX-License-Identifier: Apache-2.0
"""Translates a launch to PTX, and PTX to native code for the emulator.

Import this module only in a process that compiles and runs no kernels.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import triton

from verl_kernel.env.compilation import compiler
from verl_kernel.env.compilation.compiler import compile_trial_kernel
from verl_kernel.env.compilation.description import Unit, definitions
from verl_kernel.env.compilation.outcome import UNKNOWN, Refusal
from verl_kernel.env.compilation.rebuilding import Rebuilt
from verl_kernel.env.emulator import code, driver
from verl_kernel.env.emulator.driver import CAPABILITY
from verl_kernel.env.emulator.errors import NotKnown
from verl_kernel.env.emulator.flow.graph import pressure
from verl_kernel.env.emulator.ptx.parser import parse
from verl_kernel.env.emulator.ptx.program import PtxProgram
from verl_kernel.env.emulator.work.steps import spilling
from verl_kernel.env.ipc.messages import NativeRequest, Translated

# Asks NVIDIA's assembler, which Triton's wheels include, about PTX.


_SPILLS = re.compile(r"(\d+) bytes spill stores")
_TARGET = re.compile(r"^\.target (sm_\w+)", re.M)
_LANES, _REGISTERS, _MOST = 32, 65536, 255
"""Threads of a warp; registers of a block, and of a thread at most."""


def spills(ptx: str, program: PtxProgram, warps: int) -> int:
    """Return bytes of registers that a thread spills; 0 if all of them fit, or if there is no assembler.

    Args:
        ptx: PTX of one kernel.
        program: the same, parsed: the assembler is run only if registers may not suffice.
        warps: warps of a block.
    """
    if pressure(program) <= _registers(warps):
        return 0
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kernel.ptx")
        file.write_text(ptx)
        command = [triton.knobs.nvidia.ptxas.path, "-v", f"--gpu-name={_gpu(ptx)}", file, "-o", f"{file}.cubin"]
        try:
            log = subprocess.run(command, capture_output=True, text=True).stderr
        except OSError:  # some platforms' wheels have no assembler
            return 0
    match = _SPILLS.search(log)
    return int(match[1]) if match else 0


def _registers(warps: int) -> int:
    """Return how many registers a thread has at most."""
    return min(_MOST, _REGISTERS // (_LANES * warps))


def _gpu(ptx: str) -> str:
    """Return the GPU that PTX is written for."""
    match = _TARGET.search(ptx)
    return match[1] if match else f"sm_{CAPABILITY}"


def prepare() -> None:
    """Load what the first translation would load, and restore Triton's hooks."""
    driver.activate()
    metadata = (kernel := compile_trial_kernel()).metadata
    code.make(kernel.asm["ptx"], metadata.num_warps, metadata.shared)
    driver.change_stages(None)


def translate(unit: Unit, file: str) -> tuple[str, Translated] | Refusal:
    """Return the PTX of a launch and a message about it, or the reason why there is none.

    Args:
        unit: the launch.
        file: the file that holds its functions; its name appears in the PTX as it is given here.
    """
    if unit.launch.options.get("num_ctas", 1) != 1:
        return Refusal(UNKNOWN, "the emulator runs no clusters of blocks", 0)
    driver.activate()
    sys.modules["torch"] = compiler.without_torch("cuda")
    functions: list[Any] = []
    try:
        rebuilt = Rebuilt(unit, definitions(Path(file).read_bytes().decode("utf-8", "surrogatepass")), file)
        functions = rebuilt.functions
        kernel = functions[0].warmup(*rebuilt.positional, grid=(1,), **rebuilt.named, **rebuilt.options)
    except Exception as exc:  # noqa: BLE001  whatever stops the compiler is its refusal
        return compiler.refusal(exc, functions)
    metadata = kernel.metadata
    if metadata.global_scratch_size or metadata.profile_scratch_size:
        return Refusal(UNKNOWN, "the emulator gives a kernel no memory beside its arguments", 0)
    ptx = kernel.asm["ptx"]
    translated = Translated(
        ptx=len(ptx.encode()), warps=metadata.num_warps, shared=metadata.shared, signature=dict(kernel.src.signature)
    )
    return ptx, translated


def native(ptx: str, request: NativeRequest) -> bytes | Refusal:
    """Return native code of PTX (`emulator.code`)."""
    warps, shared = request["warps"], request["shared"]
    try:
        if request["left_out"] is not None:  # an ablation is not timed
            return code.make(ptx, warps, shared, request["left_out"]).to_bytes()
        program = parse(ptx)
        with ThreadPoolExecutor(1) as beside:
            spilled = beside.submit(spills, ptx, program, warps)
            code_object = code.of(program, warps, shared)
        if size := spilled.result():
            with_spills = spilling(code_object.facts, program, code_object.module, size, _registers(warps))
            code_object = replace(code_object, facts=with_spills)
        return code_object.to_bytes()
    except NotKnown as exc:
        return Refusal(UNKNOWN, str(exc), 0)
