# SPDX-License-Identifier: Apache-2.0
"""What the executor runs: the PTX of a launch, and native code of PTX.

Import this module only in a process that compiles and runs no kernels.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import triton

from verl_kernel.env.compilation import assembler, refusals
from verl_kernel.env.compilation.compiler import compile_trial_kernel
from verl_kernel.env.compilation.description import Unit
from verl_kernel.env.compilation.outcome import UNKNOWN, Refusal
from verl_kernel.env.compilation.rebuilding import Rebuilt
from verl_kernel.env.compilation.texts import definitions
from verl_kernel.env.compilation.trial_kernel import copy_kernel
from verl_kernel.env.executor import code, driver
from verl_kernel.env.executor.errors import NotKnown
from verl_kernel.env.executor.ptx.parser import parse
from verl_kernel.env.ipc.code_messages import NativeRequest, Translated


def prepare() -> None:
    """Load what a first translation loads, and leave Triton as it was."""
    driver.activate()
    metadata = (made := compile_trial_kernel()).metadata
    code.make(made.asm["ptx"], metadata.num_warps, metadata.shared)
    triton.knobs.runtime.add_stages_inspection_hook = None
    copy_kernel.device_caches.clear()  # for another target it is compiled anew


def translate(unit: Unit, file: str) -> tuple[str, Translated] | Refusal:
    """The PTX of a launch, and what is said of it; or why there is none.

    Args:
        unit: the launch.
        file: that holds its functions. Its name goes into the PTX as it is given here.
    """
    if unit.launch.options.get("num_ctas", 1) != 1:
        return Refusal(UNKNOWN, "the executor runs no clusters of blocks", 0)
    driver.activate()
    functions: list[Any] = []
    try:
        rebuilt = Rebuilt(unit, definitions(Path(file).read_bytes().decode("utf-8", "surrogatepass")), file)
        functions = rebuilt.functions
        made = functions[0].warmup(*rebuilt.positional, grid=(1,), **rebuilt.named, **rebuilt.options)
    except Exception as exc:  # noqa: BLE001  whatever stops the compiler is its refusal
        return refusals.refusal(exc, functions)
    metadata = made.metadata
    if metadata.global_scratch_size or metadata.profile_scratch_size:
        return Refusal(UNKNOWN, "the executor gives a kernel no memory beside its arguments", 0)
    ptx = made.asm["ptx"]
    said = Translated(
        ptx=len(ptx.encode()), warps=metadata.num_warps, shared=metadata.shared, signature=dict(made.src.signature)
    )
    return ptx, said


def native(ptx: str, request: NativeRequest) -> bytes | Refusal:
    """Native code of PTX (`executor.code`)."""
    warps, shared = request["warps"], request["shared"]
    try:
        if request["left_out"] is not None:  # an ablation is not timed
            return code.make(ptx, warps, shared, request["left_out"]).to_bytes()
        program = parse(ptx)
        with ThreadPoolExecutor(1) as beside:
            spilled = beside.submit(assembler.spills, ptx, program, warps)
            made = code.of(program, warps, shared)
        return replace(made, known=replace(made.known, spills=spilled.result())).to_bytes()
    except NotKnown as exc:
        return Refusal(UNKNOWN, str(exc), 0)
