# SPDX-License-Identifier: Apache-2.0
"""Triton's compiler and launch path without a GPU: kernels are compiled for one, the driver only pretends to run them.

Run as a script in a process without TRITON_INTERPRET; prints one JSON object. What is real: `JITFunction.run`, the
autotuner, the compiler with ptxas, `CompiledKernel`, launch hooks. What is not: the device.
"""

import json
from types import SimpleNamespace

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime.driver import driver

from verl_kernel.env.devices.cuda.launches import EventList, recording, suppressing

LAUNCHED = []


class Launcher:
    """Calls the hook as the compiled launcher does, and notes the launch."""

    def __init__(self, src, metadata):
        pass

    def __call__(self, x, y, z, stream, function, packed, metadata, enter, leave, *args):
        if enter is not None:
            enter(metadata)
        LAUNCHED.append((x, y, z))


def bench(call, quantiles=None, **options):
    for _ in range(3):
        call()
    torch.zeros(3)
    return [1.0, 1.0, 1.0]


class PretendDriver(DriverBase):
    launcher_cls = Launcher
    is_active = staticmethod(lambda: True)
    map_python_to_cpp_type = staticmethod(lambda ty: ty)
    get_current_target = staticmethod(lambda: GPUTarget("cuda", 90, 32))
    get_active_torch_device = staticmethod(lambda: torch.device("cpu"))
    get_device_interface = staticmethod(SimpleNamespace)
    get_benchmarker = staticmethod(lambda: bench)
    get_current_device = staticmethod(lambda: 0)
    get_current_stream = staticmethod(lambda device=0: 0)
    get_empty_cache_for_benchmark = staticmethod(lambda: torch.empty(1))
    clear_cache = staticmethod(torch.Tensor.zero_)

    def __init__(self):
        limits = {"max_shared_mem": 232448, "multiprocessor_count": 132, "warpSize": 32}
        self.utils = SimpleNamespace(unload_module=lambda module: None, get_device_properties=lambda device: limits)
        self.utils.load_binary = lambda *args: (1, 2, 32, 0, 1024)


@triton.jit
def copy(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)


renamed = triton.jit(copy.fn, repr=lambda specialization: f"copy_block_{specialization.constants['BLOCK']}")
tuned = triton.autotune([triton.Config({"BLOCK": size}) for size in (64, 128)], key=["n"])(triton.jit(copy.fn))


@triton.jit
def broken(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), nothing_of_that_name)  # noqa: F821


def grid(meta):
    return (triton.cdiv(1000, meta["BLOCK"]),)


def traced(call):
    events, error, before = EventList(), None, len(LAUNCHED)
    with recording(events):
        try:
            call()
        except Exception as exc:  # noqa: BLE001  what it is is the test's business
            error = [name.__name__ for name in type(exc).__mro__]
    return {"events": [event.to_json() for event in events], "error": error, "launches": len(LAUNCHED) - before}


def suppressed(call):
    before, error = len(LAUNCHED), None
    with suppressing():
        try:
            call()
        except RuntimeError as exc:
            error = str(exc)
    return {"launches": len(LAUNCHED) - before, "error": error}


def direct(x):
    kernel = copy.warmup(x, x, 1000, BLOCK=128, grid=(1,))
    kernel[(3, 1, 1)](x, x, 1000, 128)


def unhindered(x):
    events, run = EventList(), triton.runtime.jit.JITFunction.run
    with recording(events):
        pass
    copy[(1,)](x, x, 1000, BLOCK=128)
    return {"events": len(events), "same": triton.runtime.jit.JITFunction.run is run}


def main():
    driver.set_active(PretendDriver())
    x = torch.zeros(1000)
    cases = {
        "tuple": traced(lambda: copy[(8,)](x, x, 1000, BLOCK=128)),
        "function": traced(lambda: copy[grid](x, x, 1000, BLOCK=64)),
        "renamed": traced(lambda: renamed[grid](x, x, 1000, BLOCK=256)),
        "tuned": traced(lambda: tuned[grid](x, x, 1000)),
        "broken": traced(lambda: broken[(1,)](x, BLOCK=16)),
        "empty": traced(lambda: copy[(0,)](x, x, 1000, BLOCK=128)),
        "direct": traced(lambda: direct(x)),
        "suppressed": suppressed(lambda: copy[grid](x, x, 1000, BLOCK=128)),
        "suppressed_tuned": suppressed(lambda: tuned[grid](x, x, 1000)),
        "suppressed_direct": suppressed(lambda: direct(x)),
        "unhindered": unhindered(x),
        "triton": triton.__version__,
    }
    print(json.dumps(cases))


if __name__ == "__main__":
    main()
