# SPDX-License-Identifier: Apache-2.0
"""A device with memory and a clock of its own, as a GPU has them, made of the host's: for the protocol between
judge and runner, which is the same for both. Tensors are copied to it and back; its stopwatch is the host's clock.
"""

from contextlib import nullcontext
from time import perf_counter

from verl_kernel.env.clock import cuda, timed_calls
from verl_kernel.env.devices.interpreter import InterpreterDevice


class Watch:
    l2_bytes = 0

    def chill(self):
        pass

    wait = chill

    def time(self, call):
        start = perf_counter()
        result = call()
        return result, (perf_counter() - start) * 1e3

    def copy_ms(self, tensors):
        return 0.5


class PretendGpu(InterpreterDevice):
    timing_source = "cuda_event"
    exit_s = 60.0

    def to_device(self, tensor):
        return tensor.clone()

    def clock(self, options):
        return cuda.CudaClock(options, Watch(), nullcontext, lambda: {"sm_mhz": None}, None)

    def timed_calls(self, arena, put):
        return timed_calls.TimedCalls(self, arena, put, Watch())

    def facts(self):
        return {"gpu_name": "none"}

    def preload(self):
        timed_calls.device_kernels = lambda: nullcontext({"fused": [1, 0.02]})
        super().preload()
