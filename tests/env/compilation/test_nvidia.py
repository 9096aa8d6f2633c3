# SPDX-License-Identifier: Apache-2.0
"""Blocks of a multiprocessor beside NVIDIA's own occupancy calculator, a header in Triton's wheel."""

import subprocess
from pathlib import Path

import pytest
import triton

from verl_kernel.env.compilation.nvidia import NVIDIA
from verl_kernel.env.compilation.outcome import Resources

HEADERS = Path(triton.__file__).parent / "backends" / "nvidia" / "include"
WARPS, REGISTERS = (*range(1, 33),), (1, 8, *range(16, 256, 8), 127, 129, 255)
SHARED = (0, 1, 1024, 7168, 16 << 10, (33 << 10) + 4, *(kb << 10 for kb in (48, 80, 99, 100, 163, 227)))
PROGRAM = """
#include <stddef.h>
#include <stdio.h>
#include <cuda_occupancy.h>

/* Reads "major minor warps_per_sm shared_per_sm shared_per_block warps registers shared", one kernel a line. */
int main(void) {
    int major, minor, warps_per_sm, warps, registers;
    size_t shared_per_sm, shared_per_block, shared;
    while (scanf("%d %d %d %zu %zu %d %d %zu", &major, &minor, &warps_per_sm, &shared_per_sm, &shared_per_block,
                 &warps, &registers, &shared) == 8) {
        struct cudaOccDeviceProp device = {0};
        struct cudaOccFuncAttributes kernel = {0};
        struct cudaOccDeviceState state = {0};
        struct cudaOccResult result;
        device.computeMajor = major, device.computeMinor = minor;
        device.maxThreadsPerBlock = 1024, device.maxThreadsPerMultiprocessor = 32 * warps_per_sm;
        device.regsPerBlock = device.regsPerMultiprocessor = 65536, device.warpSize = 32, device.numSms = 1;
        device.sharedMemPerBlock = 48 << 10, device.sharedMemPerMultiprocessor = shared_per_sm;
        device.sharedMemPerBlockOptin = shared_per_block, device.reservedSharedMemPerBlock = 1024;
        kernel.maxThreadsPerBlock = 1024, kernel.numRegs = registers, kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
        kernel.maxDynamicSharedSizeBytes = shared_per_block;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
        if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, 32 * warps, shared))
            return 1;
        printf("%d\\n", result.activeBlocksPerMultiprocessor);
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def calculator(tmp_path_factory):
    folder = tmp_path_factory.mktemp("occupancy")
    (folder / "occupancy.c").write_text(PROGRAM)
    subprocess.run(["cc", "-w", "-I", HEADERS, "occupancy.c", "-o", "occupancy"], cwd=folder, check=True)
    return folder / "occupancy"


@pytest.mark.parametrize("target", NVIDIA, ids=lambda target: target.name)
def test_as_many_blocks_as_nvidias_calculator_says(target, calculator):
    major, minor = divmod(target.architecture, 10)
    device = (major, minor, target.warps, target.shared_bytes, target.block_shared_bytes)
    kernels = [
        (warps, registers, shared)
        for warps in WARPS for registers in REGISTERS for shared in SHARED if shared <= target.block_shared_bytes
    ]  # fmt: skip
    asked = "\n".join(" ".join(map(str, (*device, *kernel))) for kernel in kernels)
    said = subprocess.run([calculator], input=asked, capture_output=True, text=True, check=True).stdout.split()
    ours = [target.blocks(Resources(warps, shared, registers, 0)) for warps, registers, shared in kernels]
    differing = [row for row in zip(kernels, ours, map(int, said), strict=True) if row[1] != row[2]]
    assert not differing, differing[:10]
