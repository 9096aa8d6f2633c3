# SPDX-License-Identifier: Apache-2.0
"""The process that has torch and Triton loaded and forks a runner per candidate: milliseconds, not seconds.

Run by the judge as `python -m verl_kernel.env.runner.zygote <fd> <device>`; it says `ready`, then answers `fork` (with
the runner's ends of a socket, the shared memory and an output pipe) and `reap`. It ends with its judge: end of file on
the socket. It never runs a candidate itself, and adopts and kills whatever a runner leaves behind.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import torch

from verl_kernel.env.backends import Backend, resolve_backend
from verl_kernel.env.comparison import float32
from verl_kernel.env.ipc.channel import Channel, ChannelClosed
from verl_kernel.env.ipc.messages import Forked, ForkRequest, Ready, Reaped, Started
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.runner.runner import Runner
from verl_kernel.env.sandbox import jail, landlock, libc, own_paths
from verl_kernel.env.tamper.seals import SEALER
from verl_kernel.env.tamper.snapshot import Snapshot
from verl_kernel.errors import EnvironmentNotReady


def main() -> None:
    """Serve the judge behind the descriptor named on the command line."""
    serve(int(sys.argv[1]), sys.argv[2])


def serve(fd: int, name: str) -> None:
    """Serve the judge behind the descriptor `fd` with runners for the device `name`."""
    channel = Channel(socket.socket(fileno=fd))
    backend, snapshot = _prepare(name)
    channel.send(Ready(ready={"torch": torch.__version__}))
    inherited_kb = _private_kb()
    with suppress(ChannelClosed):
        while True:
            request, fds = channel.recv_with_fds(max_fds=4)
            if "fork" in request:
                channel.send(Forked(pid=_fork(request["fork"], fds, channel, backend, snapshot)))
            else:
                channel.send(_reap(request["reap"], inherited_kb))


def _prepare(name: str) -> tuple[Backend, Snapshot]:
    jail.hide_memory()
    jail.leave_network()
    libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
    sys.dont_write_bytecode = True
    torch.set_num_threads(1)
    float32.use("ieee")
    backend = resolve_backend(name, probe=False)
    backend.device.preload()
    landlock.readable()
    snapshot = Snapshot()
    gc.collect()
    gc.freeze()
    return backend, snapshot


def _fork(request: ForkRequest, fds: list[int], channel: Channel, backend: Backend, snapshot: Snapshot) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            channel.close()
            _become_runner(request, fds, backend, snapshot)
            status = 0
        finally:  # whatever happened, this copy of the zygote must not return to its loop
            os._exit(status)
    for fd in fds:
        os.close(fd)
    return pid


def _become_runner(request: ForkRequest, fds: list[int], backend: Backend, snapshot: Snapshot) -> None:
    sock, memory_fd, output, SEALER.fd = fds
    device = backend.device
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    memory = SharedMemory(memory_fd, request["memory_bytes"])
    _close_all_but(sock, SEALER.fd)
    limits = jail.Limits(request["scratch"], request["memory_mb"], device.isolation())
    own_paths.settle(device.zygote_env(), limits.scratch)
    channel = Channel(socket.socket(fileno=sock))
    started: Started = {"isolation": jail.enter(limits)}
    float32.use(request["float32"])
    try:
        device.enter(limits.memory_mb)
    except EnvironmentNotReady as exc:
        started["unfit"] = str(exc)
    channel.send(started)
    Runner(channel, memory, backend, limits.scratch, snapshot).serve()
    libc.LIBC.malloc_trim(0)  # walks the heap: a candidate that wrote past its memory ends here with SIGABRT


def _close_all_but(*kept: int) -> None:
    first = 3
    for fd in (*sorted(kept), os.sysconf("SC_OPEN_MAX")):
        os.closerange(first, fd)
        first = fd + 1


def _reap(pid: int, inherited_kb: int) -> Reaped:
    """Collect a dead runner and kill what it left behind: exit status (or minus the signal) and its largest memory."""
    try:
        _, status, used = os.wait4(pid, 0)
        code, grown_kb = os.waitstatus_to_exitcode(status), max(0, used.ru_maxrss - inherited_kb)
    except ChildProcessError:
        code, grown_kb = -signal.SIGKILL, 0
    while orphans := _children():
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


def _start() -> NoReturn:
    main()
    os._exit(0)


if __name__ == "__main__":
    _start()
