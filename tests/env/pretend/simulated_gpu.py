# SPDX-License-Identifier: Apache-2.0
"""A GPU made of arithmetic: streams that run side by side, a host that runs ahead of them, events between."""


class Clock:
    """The host's time in milliseconds; stands in for the module `time`."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now / 1e3

    monotonic = perf_counter

    def sleep(self, seconds):
        self.now += seconds * 1e3


class SimulatedGpu:
    """What `GpuTimeline` is to a real one; `done` notes what it was asked for."""

    l2_bytes = flush_bytes = 0
    flush_ms, hold_ms, wake_ms, late = 0.1, 0.2, 0.01, ()

    def __init__(self, clock):
        self.clock, self.free, self.held, self.done = clock, {"default": 0.0}, 0.0, []

    def launch(self, ms, stream="default"):
        """Queue a kernel, which begins when its stream gets to it."""
        begin = max(self.clock.now, self.free.get(stream, 0.0))
        if stream != "default":
            begin = max(begin, self.held)
        self.free[stream] = begin + ms

    def event(self):
        return {"at": 0.0}

    def record(self, event):
        event["at"] = max(self.clock.now, self.free["default"])
        self.done.append("event")

    def elapsed_ms(self, start, stop):
        return stop["at"] - start["at"]

    def wait(self):
        self.clock.now = max(self.clock.now, *self.free.values()) + self.wake_ms
        self.done.append("wait")

    def unpin(self):
        self.done.append("unpin")

    def flush(self):
        self.launch(self.flush_ms)
        self.done.append("flush")

    def stall(self, ms):
        self.stall_ms = ms
        self.launch(ms)
        self.done.append("stall")

    def hold(self, event):
        self.held = event["at"]
        self.clock.now += self.hold_ms + (self.late.pop(0) if self.late else 0.0)
        self.done.append("hold")

    def reached(self, event):
        return self.clock.now >= event["at"]

    def host_ms(self):
        return self.clock.now
