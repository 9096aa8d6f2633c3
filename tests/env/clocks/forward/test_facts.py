# SPDX-License-Identifier: Apache-2.0
"""Facts of a profile agree with NVIDIA's assembler and disassembler, on fifty kernels.

Run as a program, with the word `counted` or `compiled`, it prints a line of JSON for each kernel: its operations on
tensor cores by the emulator's counts; or what the gym reads off the compiler for sm_90, beside what NVIDIA's assembler
says of the same PTX and what the disassembly of the machine code shows.
"""

import contextlib
import io
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import triton
from triton.runtime.jit import JITFunction

from tests.env.processes import ROOT, printed
from verl_kernel.env.compilation.compiler import prepare
from verl_kernel.env.compilation.targets import TARGETS
from verl_kernel.env.emulator import driver
from verl_kernel.env.emulator.kernel import Kernel
from verl_kernel.env.emulator.work.costs import operations
from verl_kernel.env.judge.compiling.stage import limit

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
TARGET = TARGETS["sm_90"]
PRODUCT = re.compile(r"\b(?:HMMA|HGMMA|IMMA|IGMMA|QGMMA|DMMA)\b")
_RUN, _LAUNCH = JITFunction.run, Kernel.launch


def rows(folder, what):
    more = {"PYTHONPATH": f"{ROOT}:{ROOT / 'benchmarks'}", "OMP_NUM_THREADS": "1", "TRITON_CACHE_DIR": str(folder)}
    told = printed("-m", "tests.env.clocks.forward.test_facts", what, **more)
    return {row["name"]: row for row in map(json.loads, told.splitlines())}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    found = rows(tmp_path_factory.mktemp("compiled"), "compiled")
    assert len(found) >= 50
    return found


@pytest.mark.parametrize("ours, theirs", [
    ("registers", "ptxas_registers"), ("registers", "sass_registers"), ("spills", "ptxas_spills"),
])  # fmt: skip
def test_registers_and_spills_are_those_of_the_assembler(compiled, ours, theirs):
    assert {name: row[ours] for name, row in compiled.items()} == {name: row[theirs] for name, row in compiled.items()}


def test_spills_are_local_and_shared_memory_is_the_launchs(compiled):
    """The assembler knows only what is allocated in the code: nothing; the launch asks for the compiler's number."""
    assert all(bool(row["spills"]) <= bool(row["sass_local"]) for row in compiled.values())
    assert {row["sass_shared"] for row in compiled.values()} <= {0, 1024}


def test_tensor_cores_are_used_if_the_machine_code_does(compiled, tmp_path):
    counted = rows(tmp_path, "counted")
    by_count, by_code = (
        {name: bool(row[key]) for name, row in some.items()}
        for some, key in ((counted, "products"), (compiled, "sass_products"))
    )
    assert by_count == by_code
    assert sum(by_code.values()) >= 8


def test_the_limit_follows_from_registers_and_shared_memory(compiled):
    for row in compiled.values():
        by_registers = 65536 // (-(-row["registers"] * 32 // 256) * 256) // (-(-row["warps"] // 4) * 4)
        by_shared = (228 << 10) // (-(-(row["shared"] + 1024) // 128) * 128)
        most = min(32, 64 // row["warps"])
        assert row["blocks_per_sm"] == min(by_registers, by_shared, most)
        limits = {"registers": by_registers, "shared memory": by_shared, "warps and blocks": most}
        assert limits[row["limit"]] == row["blocks_per_sm"]


def launches():
    import emulator_kernels
    import sampled_kernels

    yield from sampled_kernels.launches()
    for name, (kernel, grid, arguments, options) in emulator_kernels.launches():
        yield name, lambda kernel=kernel, grid=grid, args=arguments, more=options: kernel[grid](*args, **more)


def operations_of_all():
    driver.activate()
    seen = []

    def launch(self, *args, **kwargs):
        count = _LAUNCH(self, *args, **kwargs, order=[0])  # the first program shows which units a kernel has
        seen.append(operations(count))
        return count

    Kernel.launch = launch
    for name, start in launches():
        seen.clear()
        start()
        yield {"name": name, "products": sum(seen[0][unit] for unit in ("half", "tf32", "fma"))}


def resources_of_all():
    import torch

    prepare(TARGET)
    sys.modules["torch"] = torch  # a compiling process has none, and this one makes tensors
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
        used = TARGET.resources(made.metadata._asdict(), made.asm, log)
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
    for row in {"counted": operations_of_all, "compiled": resources_of_all}[sys.argv[1]]():
        print(json.dumps(row), flush=True)
