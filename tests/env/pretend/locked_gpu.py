# SPDX-License-Identifier: Apache-2.0
"""A pretended GPU that judges share: its lock is real, and a judge writes down when it uses it and when it times."""

import os
import time
from contextlib import contextmanager
from pathlib import Path

import pretend_gpu
from pretend_gpu import PretendGpu

from verl_kernel.env.devices.cuda.lock import SharedDevice, Sharing


class LockedGpu(SharedDevice, PretendGpu):
    uuid = "GPU-pretended"
    journal: Path | None = None
    census = staticmethod(lambda: None)
    is_judges = False

    def adopt(self, options):
        self.sharing, self.is_judges = Sharing(self.uuid, options, self.census), True

    @contextmanager
    def alone(self):
        with self.sharing.alone():
            self.note("clock begins")
            yield
            self.note("clock ends")

    def grant(self, memory_mb):
        self.note("use")

    def to_device(self, tensor):
        self.note("use")
        return super().to_device(tensor)

    def place(self, model):
        self.note("use")
        return super().place(model)

    def note(self, what):
        if self.is_judges and self.journal is not None:
            with open(self.journal, "a") as file:
                file.write(f"{time.monotonic_ns()} {os.getpid()} {what}\n")


def backend():
    device = LockedGpu()
    return pretend_gpu.backend(device, device.alone)


def read(journal):
    """Times, processes and words, in the order of the times."""
    lines = (line.split(maxsplit=2) for line in Path(journal).read_text().splitlines())
    return sorted((int(at), int(pid), what) for at, pid, what in lines)
