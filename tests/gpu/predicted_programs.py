# SPDX-License-Identifier: Apache-2.0
"""Ten programs, five of torch, five of Triton; as a script, prints what the model predicts."""

import json
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from benchmarks.emulator_kernels import add, matmul, softmax
from verl_kernel.env.trace import TraceEvent

ELEMENTS, TILE = 1 << 24, 1 << 16
ROWS, COLUMNS = 512, 16384
SIZE = 1024


@triton.jit
def one_program(x, o, n, B: tl.constexpr):
    for at in range(0, n, B):
        i = at + tl.arange(0, B)
        tl.store(o + i, tl.load(x + i) * 2.0)


@triton.jit
def columns_sum(x, o, n, rows, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.zeros([B], tl.float32)
    for row in range(rows):
        total += tl.load(x + row * n + i)
    tl.store(o + i, total)


def programs(device: str) -> dict[str, Callable[[], object]]:
    """By name; their tensors lie on a device."""
    x, y, o = (torch.ones(ELEMENTS, device=device) for _ in range(3))
    table, image = torch.ones(ROWS, COLUMNS, device=device), torch.ones(8, 64, 64, 64, device=device)
    weight, half = torch.ones(64, 64, 3, 3, device=device), torch.ones(SIZE, SIZE, device=device, dtype=torch.float16)
    square, sums = torch.ones(SIZE, SIZE, device=device), torch.empty(COLUMNS, device=device)
    written = torch.empty_like(table)
    return {
        "torch add": lambda: x + y,
        "torch sum": lambda: table.sum(1),
        "torch softmax": lambda: torch.softmax(table, 1),
        "torch product": lambda: square @ square,
        "torch convolution": lambda: torch.nn.functional.conv2d(image, weight, padding=1),
        "add": lambda: add[(ELEMENTS // TILE,)](x, y, o, ELEMENTS, TILE, num_warps=16),
        "softmax": lambda: softmax[(ROWS,)](table, written, COLUMNS, COLUMNS, num_warps=8),
        "one program": lambda: one_program[(1,)](table, written, ROWS * COLUMNS // 16, B=8192, num_warps=8),
        "half product": lambda: matmul[(8, 8)](half, half, square, *[SIZE] * 3, 128, 128, 64, "ieee", num_warps=8),
        "sum of columns": lambda: columns_sum[(COLUMNS // 128,)](table, sums, COLUMNS, ROWS, B=128),
    }


def predictions() -> dict[str, float]:
    """Milliseconds by name, as an H100 with torch's defaults has them."""
    from verl_kernel.env.devices.op_recorder import OpRecorder
    from verl_kernel.env.emulator import driver
    from verl_kernel.env.gpus import GPUS
    from verl_kernel.env.machine.machine import MachineModel
    from verl_kernel.env.machine.price import time_ms

    driver.activate()
    events, machine, found = [], MachineModel(GPUS["h100"], convolution_tf32=True), {}
    record_launches(events)
    for name, run in programs("cpu").items():
        events.clear()
        with torch.no_grad(), OpRecorder(events):
            run()
        found[name] = time_ms(events, machine)
    return found


def record_launches(events: list[TraceEvent]) -> None:
    """Append what each launch of the emulator did, from now on."""
    from verl_kernel.env.emulator.kernel import Kernel
    from verl_kernel.env.emulator.work.steps import launch_work
    from verl_kernel.env.machine.constants import constant

    launch = Kernel.launch

    def recorded(self: Kernel, *args: Any, **options: Any) -> Any:
        count = launch(self, *args, **options)
        work, host_us = launch_work(count), int(constant("triton_host_us"))
        numbers = work.bytes, work.flops, work.half_flops
        events.append(TraceEvent("launch", "kernel", count.shape, *numbers, steps=work.steps, host_us=host_us))
        return count

    Kernel.launch = recorded


if __name__ == "__main__":
    print(json.dumps(predictions()))
