# SPDX-License-Identifier: Apache-2.0
"""What every zygote does for its judge: fork a process on request, and collect it when it has ended.

The zygote adopts and kills whatever such a process leaves behind.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Set
from contextlib import suppress
from pathlib import Path

from verl_kernel.env.ipc.channel import Channel, ChannelClosed
from verl_kernel.env.ipc.messages import Forked, ForkRequest, Prepared, Reaped
from verl_kernel.env.sandbox import libc

Become = Callable[[ForkRequest, list[int]], None]
"""What a forked process does with its request and its ends of socket, shared memory and pipes."""


def adopt_orphans() -> None:
    """Let what forked processes leave behind become children of this one."""
    libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)


def serve(channel: Channel, become: Become, load: Callable[[], object] = lambda: None) -> None:
    """Answer the judge until it closes its end.

    Args:
        channel: to the judge.
        become: what a forked process does.
        load: what `prepare` loads, for all processes forked later.
    """
    inherited_kb, alive = _private_kb(), set[int]()
    with suppress(ChannelClosed):
        while True:
            request, fds = channel.recv_with_fds(max_fds=6)
            if "fork" in request:
                pid = _fork(request["fork"], fds, channel, become)
                alive.add(pid)
                channel.send(Forked(pid=pid))
            elif "prepare" in request:
                load()
                gc.freeze()
                inherited_kb = _private_kb()
                channel.send(Prepared(prepared=True))
            else:
                alive.discard(request["reap"])
                channel.send(_reap(request["reap"], inherited_kb, alive))


def replace_descriptors(output: int, *kept: int) -> None:
    """Read nothing, print to `output`, and close everything but these descriptors."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    first = 3
    for fd in (*sorted(kept), os.sysconf("SC_OPEN_MAX")):
        os.closerange(first, fd)
        first = fd + 1


def _fork(request: ForkRequest, fds: list[int], channel: Channel, become: Become) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            channel.close()
            become(request, fds)
            status = 0
        finally:  # whatever happened, this copy of the zygote must not return to its loop
            os._exit(status)
    for fd in fds:
        os.close(fd)
    return pid


def _reap(pid: int, inherited_kb: int, alive: Set[int]) -> Reaped:
    """Collect a dead process and kill what it left behind: exit status (or minus the signal), its largest memory.

    Args:
        pid: its number.
        inherited_kb: memory that it began with.
        alive: other processes, which go on.
    """
    try:
        _, status, used = os.wait4(pid, 0)
        code, grown_kb = os.waitstatus_to_exitcode(status), max(0, used.ru_maxrss - inherited_kb)
    except ChildProcessError:
        code, grown_kb = -signal.SIGKILL, 0
    while orphans := [orphan for orphan in _children() if orphan not in alive]:
        for orphan in orphans:
            with suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(orphan, 0)
    return {"status": code, "grown_mb": grown_kb >> 10}


def _private_kb() -> int:
    """Private memory, which a fork inherits; pages of files are not in it, a fork maps those again one by one."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon:")).split()[1])


def _children() -> list[int]:
    listing = Path(f"/proc/self/task/{os.getpid()}/children")
    return [int(pid) for pid in listing.read_text().split()] if listing.exists() else []
