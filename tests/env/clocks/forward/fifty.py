# SPDX-License-Identifier: Apache-2.0
"""Facts about many kernels, run by test_facts.py in processes of its own: a line of JSON for each.

    python -m tests.env.clocks.forward.fifty counted
    python -m tests.env.clocks.forward.fifty compiled

`counted`: operations on tensor cores by the executor's counts. `compiled`: what the gym reads off the compiler for
sm_90, beside what NVIDIA's assembler says of the same PTX and what the disassembly of the machine code shows.
"""

import contextlib
import io
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import triton
from triton.runtime.jit import JITFunction

from verl_kernel.env.compilation.compiler import prepare
from verl_kernel.env.compilation.targets import TARGETS
from verl_kernel.env.executor import driver
from verl_kernel.env.executor.kernel import Kernel
from verl_kernel.env.executor.work.costs import operations
from verl_kernel.env.judge.compiling.stage import limit

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
TARGET = TARGETS["sm_90"]
PRODUCT = re.compile(r"\b(?:HMMA|HGMMA|IMMA|IGMMA|QGMMA|DMMA)\b")
_RUN, _LAUNCH = JITFunction.run, Kernel.launch


def launches():
    import executor_kernels
    import sampled_kernels

    yield from sampled_kernels.launches()
    for name, (kernel, grid, arguments, options) in executor_kernels.launches():
        yield name, lambda kernel=kernel, grid=grid, args=arguments, more=options: kernel[grid](*args, **more)


def counted():
    driver.activate()
    seen = []

    def launch(self, *args, **kwargs):
        count = _LAUNCH(self, *args, **kwargs, order=[0])  # the first program shows which units a kernel has
        seen.append(operations(count))
        return count

    Kernel.launch = launch
    for name, run in launches():
        seen.clear()
        run()
        yield {"name": name, "products": sum(seen[0][unit] for unit in ("half", "tf32", "fma"))}


def compiled():
    prepare(TARGET)
    triton.knobs.compilation.always_compile = True
    seen = []

    def run(self, *args, grid, warmup, **options):
        log = io.StringIO()
        self.device_caches.clear()  # what is not compiled again has no log
        with contextlib.redirect_stdout(log):
            made = _RUN(self, *args, grid=grid, warmup=True, **options)
        seen.append((made, log.getvalue()))

    JITFunction.run = run
    for name, launch in launches():
        seen.clear()
        launch()
        made, log = seen[0]
        used = TARGET.resources(made.metadata._asdict(), made.asm["ptx"], log)
        yield {
            "name": name, "registers": used.registers, "spills": used.spills, "shared": used.shared,
            "limit": limit(used, TARGET), "blocks_per_sm": TARGET.blocks(used), "warps": used.warps,
            **_assembler(made.asm["ptx"]), **_disassembly(made.asm["cubin"]),
        }  # fmt: skip


def _assembler(ptx):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kernel.ptx")
        file.write_text(ptx)
        name = "sm_90a" if ".target sm_90a" in ptx else "sm_90"
        command = [TOOLS / "ptxas", "-v", f"--gpu-name={name}", file, "-o", f"{file}.cubin"]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    registers, spills = re.search(r"Used (\d+) registers", told), re.search(r"(\d+) bytes spill stores", told)
    return {"ptxas_registers": int(registers[1]), "ptxas_spills": int(spills[1])}


def _disassembly(cubin):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kernel.cubin")
        file.write_bytes(cubin)
        usage = subprocess.run(
            [TOOLS / "cuobjdump", "--dump-resource-usage", file], capture_output=True, text=True, check=True
        ).stdout
        code = subprocess.run([TOOLS / "nvdisasm", "-c", file], capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)", usage)
    return {
        "sass_registers": int(found[1]), "sass_shared": int(found[3]), "sass_products": len(PRODUCT.findall(code)),
        "sass_local": len(re.findall(r"\bSTL\b", code)),
    }  # fmt: skip


if __name__ == "__main__":
    for row in {"counted": counted, "compiled": compiled}[sys.argv[1]]():
        print(json.dumps(row), flush=True)
