# SPDX-License-Identifier: Apache-2.0
"""A section whose process dies, half a line written."""

import os
import signal
from pathlib import Path

from benchmarks.gpu.findings import FILE


def run(setting, findings):
    findings.fact("before", "the end")
    with (Path(setting.out) / FILE).open("a") as file:
        file.write('{"section": "crash')
    os.kill(os.getpid(), signal.SIGSEGV)
