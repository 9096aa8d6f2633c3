# SPDX-License-Identifier: Apache-2.0
"""The isolation section for a device whose context needs two things that the jail refuses."""

import socket
from pathlib import Path
from types import SimpleNamespace

from pretend_gpu import PretendGpu  # in PYTHONPATH, as the driver sets it

from benchmarks.gpu import isolation


class Demanding(PretendGpu):
    def enter(self, memory_mb):
        socket.socket(socket.AF_INET).close()
        Path("/proc/version").read_text()


def run(setting, findings):
    isolation.run(SimpleNamespace(device=lambda probe: Demanding(), left_s=setting.left_s), findings)
