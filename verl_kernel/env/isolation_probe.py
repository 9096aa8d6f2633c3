# SPDX-License-Identifier: Apache-2.0
"""The probe of the jail: enters it in a separate process, to find the mechanisms that this machine grants."""

from __future__ import annotations

import subprocess
import sys
import tempfile

from verl_kernel.env.sandbox import jail
from verl_kernel.errors import EnvironmentNotReady


def granted_isolation(device: str) -> list[str]:
    """Return the mechanisms of isolation that runners have on this machine; `device` is cpu or cuda.

    Raises:
        EnvironmentNotReady: the process that entered the jail failed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", __name__, scratch, device]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        last = (process.stderr.strip().splitlines() or ["no output"])[-1]
        raise EnvironmentNotReady(
            f"the gym's jail could not be entered ({last}): a runner needs fork, prctl and setrlimit"
        )
    return process.stdout.split()


def _enter(scratch: str, device: str) -> list[str]:
    from verl_kernel.env.backends import resolve_device  # imports torch, which only the separate process needs

    profile = resolve_device(device, probe=False).isolation()
    return jail.enter(jail.Limits(scratch=scratch, memory_mb=1024, profile=profile))


if __name__ == "__main__":
    sys.stdout.write(" ".join(_enter(*sys.argv[1:])))
