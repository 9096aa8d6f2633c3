# SPDX-License-Identifier: Apache-2.0
"""A device with memory and a clock of its own, as a GPU has them, made of the host's: for the protocol between
judge and runner, which is the same for both. Tensors are copied to it and back; its stopwatch is the host's clock.
"""

from contextlib import nullcontext
from time import perf_counter

from verl_kernel.env.backends import Backend
from verl_kernel.env.clocks.cuda import clock as cuda
from verl_kernel.env.clocks.cuda import timed_calls
from verl_kernel.env.devices.cpu.device import CpuDevice
from verl_kernel.env.devices.cuda.stopwatch import Stopwatch


class HostTimeline:
    """Events of the host's clock: whatever is queued has already happened."""

    l2_bytes = flush_bytes = 0

    def event(self):
        return [0.0]

    def record(self, event):
        event[0] = perf_counter()

    def elapsed_ms(self, start, stop):
        return (stop[0] - start[0]) * 1e3

    def wait(self):
        pass

    unpin = flush = wait

    def hold(self, event):
        pass

    stall = reached = hold

    def host_ms(self):
        return 1e3 * perf_counter()


def stopwatch():
    return Stopwatch(HostTimeline())


class QuickClock(cuda.CudaClock):
    most_forwards = 2  # of what takes milliseconds here


class NowhereLink:
    """Of a process that no judge has given an executing one: its launches do nothing."""

    def run(self, unit, **launch):
        return {"failure": None, "work": None, "base": 0, "changed_again": []}, []


class PretendGpu(CpuDevice):
    timing_source = "cuda_event"
    seals_traces = is_counted = False
    compiles_itself = True
    exit_s = 60.0

    def adopt(self, options):
        """It measures, so it has no simulated clock's name."""

    def to_device(self, tensor):
        return tensor.clone()

    def facts(self):
        return {"gpu_name": "none"}

    def preload(self):
        from verl_kernel.env.devices.cpu.launch_state import STATE

        STATE.link = NowhereLink()
        timed_calls.device_kernels = lambda: nullcontext({"fused": [1, 0.02]})
        super().preload()


def backend(device=None, alone=nullcontext):
    """A pretended device with its clock, which has the device alone in the context manager `alone`."""
    device = device or PretendGpu()
    return Backend(
        device,
        lambda options: QuickClock(options, stopwatch(), alone=alone, state=lambda: {"sm_mhz": None}, peak=None),
        lambda memory, put: timed_calls.TimedCalls(device, memory, put, stopwatch()),
    )
