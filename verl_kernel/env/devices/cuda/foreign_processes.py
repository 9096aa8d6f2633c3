# SPDX-License-Identifier: Apache-2.0
"""Which of the processes on a GPU belong to no judge of this machine."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

_OURS = (b"verl_kernel.env.pool.judge_worker", b"verl_kernel.env.runner.zygote")
"""Modules that judges and zygotes are started as; a runner is a copy of its zygote."""


def count_foreign(pids: Collection[int] | None) -> int | None:
    """How many of these are neither a judge of this machine nor descend from one.

    Args:
        pids: as the driver numbers the processes on a GPU; None where it does not tell.

    Returns:
        None where it cannot be known. The driver counts in another namespace than a container does: its numbers are
        believed where this process, which uses the GPU, is among them.
    """
    if pids is None or os.getpid() not in pids:
        return None
    return sum(not _is_ours(pid) for pid in pids)


def _is_ours(pid: int) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            state, parent = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()[:2]
        except OSError:
            return not _is_alive(pid)
        if state in (b"Z", b"X") or not set(words).isdisjoint(_OURS):
            return True
        pid = int(parent)
    return False


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:  # it has ended since the driver was asked
        return False
    except PermissionError:
        return True
    return True
