# SPDX-License-Identifier: Apache-2.0
"""The request loop of every zygote: forks a process for its judge, and collects the process after its end.

Child processes that a forked process leaves behind become children of the zygote, which kills them.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from verl_kernel.env.ipc.channel import Channel, ChannelClosed
from verl_kernel.env.ipc.messages import Forked, ForkRequest, Prepared, Reaped
from verl_kernel.env.sandbox import jail, landlock, libc

Become = Callable[[ForkRequest, list[int]], None]
"""The code of a forked process; its arguments are the request, and descriptors of socket, shared memory and pipes."""


def adopt_orphans() -> None:
    """Make this process the parent of all orphaned descendants (PR_SET_CHILD_SUBREAPER)."""
    libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)


@contextmanager
def inherited() -> Iterator[None]:
    """Load inside what forked processes inherit; other processes cannot read it, and the collector leaves it alone."""
    jail.hide_memory()
    jail.leave_network()
    adopt_orphans()
    sys.dont_write_bytecode = True
    yield
    landlock.readable()
    jail.closed_paths()
    # Frozen objects are not visited by the collector, so forked processes share their pages with this one.
    gc.collect()
    gc.freeze()


def end_after(become: Callable[[], None]) -> NoReturn:
    """Do the work of a forked process and end it; its owner reads the traceback of a failure."""
    status = 1
    try:
        become()
        status = 0
    except BaseException:  # noqa: BLE001  this copy must not return to its caller
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(BaseException):
            sys.stderr.flush()
        os._exit(status)


def serve(channel: Channel, become: Become, load: Callable[[], object] = lambda: None) -> None:
    """Answer the judge's requests until it closes its end.

    Args:
        channel: the connection to the judge.
        become: runs in each forked process, which exits when it returns.
        load: called for `prepare`; all processes forked later inherit what it loads.
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


def replace_descriptors(output: int, *needed: int) -> None:
    """Connect stdin to /dev/null and stdout and stderr to `output`; close all other descriptors but `kept`."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    first = 3
    for fd in (*sorted(needed), os.sysconf("SC_OPEN_MAX")):
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
        finally:  # after any exception too: the forked copy must never return to the zygote's loop
            os._exit(status)
    for fd in fds:
        os.close(fd)
    return pid


def _reap(pid: int, inherited_kb: int, alive: Set[int]) -> Reaped:
    """Collect a dead process and kill its orphans; return exit status (or minus the signal) and grown memory.

    Args:
        pid: the process id.
        inherited_kb: memory that it had after the fork, in KiB; subtracted from its peak.
        alive: other forked processes, which must not be killed.
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
    """Return this process's private memory in KiB, which a fork inherits.

    Pages of mapped files do not count: a forked process maps each of them again only when it touches it.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon:")).split()[1])


def _children() -> list[int]:
    listing = Path(f"/proc/self/task/{os.getpid()}/children")
    return [int(pid) for pid in listing.read_text().split()] if listing.exists() else []
