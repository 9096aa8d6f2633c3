# SPDX-License-Identifier: Apache-2.0
"""The isolation section for a device whose context needs two things that the jail refuses."""

import socket
from pathlib import Path

from pretend_gpu import PretendGpu, backend  # in PYTHONPATH, as the driver sets it

from benchmarks.gpu import isolation
from verl_kernel.env.runner import zygote


class Demanding(PretendGpu):
    def enter(self, memory_mb):
        socket.socket(socket.AF_INET).close()
        Path("/proc/version").read_text()


def run(setting, findings):
    zygote.resolve_backend = lambda name, probe: backend(Demanding())
    isolation.run(setting, findings)
