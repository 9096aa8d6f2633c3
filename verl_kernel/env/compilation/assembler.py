# SPDX-License-Identifier: Apache-2.0
"""What NVIDIA's assembler, which Triton's wheels bring along, says of PTX."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

import triton

from verl_kernel.env.executor.driver import CAPABILITY
from verl_kernel.env.executor.flow.pressure import pressure
from verl_kernel.env.executor.ptx.program import Program

_SPILLS = re.compile(r"(\d+) bytes spill stores")
_LANES, _REGISTERS, _MOST = 32, 65536, 255
"""Of a warp; of a block, and of a thread at most."""


def spills(ptx: str, program: Program, warps: int) -> int:
    """Bytes of registers that a thread stores for want of more; 0 where all that it holds fits, or none can tell.

    Args:
        ptx: of one kernel.
        program: the same, parsed: the assembler is asked only where registers may be wanting.
        warps: of a block.
    """
    if pressure(program) <= min(_MOST, _REGISTERS // (_LANES * warps)):
        return 0
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kernel.ptx")
        file.write_text(ptx)
        command = [triton.knobs.nvidia.ptxas.path, "-v", f"--gpu-name=sm_{CAPABILITY}", file, "-o", f"{file}.cubin"]
        try:
            told = subprocess.run(command, capture_output=True, text=True).stderr
        except OSError:  # a platform whose wheels have no assembler
            return 0
    found = _SPILLS.search(told)
    return int(found[1]) if found else 0
