# SPDX-License-Identifier: Apache-2.0
"""What host code sees where `cuda` means the CPU: run as a script, prints one JSON object."""

import json
import sys
import time

from verl_kernel.env.backends import resolve_device

DEVICE = resolve_device("cpu")
DEVICE.setup()
DEVICE.setup()  # repeated calls are free

import torch  # noqa: E402
import triton  # noqa: E402

from verl_kernel.env.trace import dump_events  # noqa: E402


def cuda_names():
    """Runs as the gym runs a program: the script is no library, so it is told that the CPU is `cuda`."""
    x = torch.ones(4, device="cuda")
    moved = [x.cuda(), x.to("cuda:0"), x.to(torch.device("cuda")), torch.zeros_like(x, device=x.device)]
    with torch.device("cuda"), torch.cuda.device(x.device), torch.cuda.stream(torch.cuda.Stream()):
        moved.append(torch.zeros(2))
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LSTM(4, 4)).cuda().to("cuda")
    model(x[None])
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    torch.cuda.synchronize()
    return {
        "shown": [str(x.device), x.is_cuda, torch.cuda.is_available(), torch.cuda.current_device()],
        "capability": list(torch.cuda.get_device_capability()),
        "processors": torch.cuda.get_device_properties(0).multi_processor_count,
        "same": x.device.type == torch.device("cuda").type,
        "numpy": [tensor.numpy().sum().item() for tensor in moved],
        "active": str(triton.runtime.driver.active.get_active_torch_device()),
    }


def bench():
    """Milliseconds that each call took, by its own account, beside those that `do_bench` gives."""
    from triton.testing import do_bench

    own = []

    def work():
        start = time.perf_counter()
        sum(range(10_000))
        own.append((time.perf_counter() - start) * 1e3)

    return own, do_bench(work, warmup=1, rep=5, return_mode="all")


def inference_mode():
    model, x, found = torch.nn.Linear(8, 4), torch.randn(2, 8), {}
    for mode in (torch.no_grad, torch.inference_mode):
        with mode(), DEVICE.record() as events:
            torch.softmax(model(x), -1)
        found[mode.__name__] = dump_events(events)
    return found


json.dump({case.__name__: case() for case in (cuda_names, bench, inference_mode)}, sys.stdout)
