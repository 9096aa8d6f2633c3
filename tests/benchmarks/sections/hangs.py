# SPDX-License-Identifier: Apache-2.0
"""A section that hangs where an interrupt does not reach it, with a child that hangs too."""

import signal
import subprocess
import time


def run(setting, findings):
    child = subprocess.Popen(["sleep", "600"])
    findings.fact("child", child.pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    time.sleep(600)
