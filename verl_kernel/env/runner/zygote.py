# SPDX-License-Identifier: Apache-2.0
"""The zygote: has torch and Triton loaded and forks a runner per candidate, in milliseconds instead of seconds.

The judge runs it as `python -m verl_kernel.env.runner.zygote <fd> <device>`. It sends `ready`, then answers `fork`
(which comes with the runner's ends of a socket, the shared memory and an output pipe), `reap` and `prepare`. It ends
when the judge closes the socket. It never runs a candidate itself, and kills the processes that a runner leaves behind.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable

import torch

from verl_kernel.env.backends import Backend, resolve_backend
from verl_kernel.env.comparison import tf32
from verl_kernel.env.ipc import fork_loop
from verl_kernel.env.ipc.channel import Channel
from verl_kernel.env.ipc.messages import ForkRequest, Ready, Started
from verl_kernel.env.ipc.shared_memory import SharedMemory
from verl_kernel.env.runner.runner import Runner
from verl_kernel.env.sandbox import jail, landlock, libc
from verl_kernel.env.tamper.seals import SEALER
from verl_kernel.env.tamper.snapshot import Snapshot
from verl_kernel.env.true_size import dataless
from verl_kernel.errors import EnvironmentNotReady


def main() -> None:
    """Serve the judge whose socket and device are given on the command line."""
    serve(int(sys.argv[1]), sys.argv[2], libc.collapse)


def serve(fd: int, name: str, before_ready: Callable[[], None] = lambda: None) -> None:
    """Serve the judge behind the descriptor `fd` with runners for the device `name`.

    Args:
        fd: the socket to the judge.
        name: the device, as in `resolve_backend`.
        before_ready: called once the device is loaded, before the judge is told that runners can be forked.
    """
    channel = Channel(socket.socket(fileno=fd))
    backend, snapshot = _prepare(name)
    before_ready()
    channel.send(Ready(ready={"torch": torch.__version__}))
    fork_loop.serve(channel, lambda request, fds: _become_runner(request, fds, backend, snapshot), dataless.load)


def _prepare(name: str) -> tuple[Backend, Snapshot]:
    with fork_loop.inherited():
        torch.set_num_threads(1)
        tf32.use("ieee")
        backend = resolve_backend(name, probe=False)
        backend.device.preload()
        return backend, Snapshot()


def _become_runner(request: ForkRequest, fds: list[int], backend: Backend, snapshot: Snapshot) -> None:
    sock, memory_fd, output, SEALER.fd, *further = fds
    device = backend.device
    memory = SharedMemory(memory_fd, request["memory_bytes"])
    if further:
        link, arena = further
        device.connect(Channel(socket.socket(fileno=link)), SharedMemory(arena, request["arena_bytes"]))
    fork_loop.replace_descriptors(output, sock, SEALER.fd, *further[:1])
    limits = jail.Limits(request["scratch"], request["memory_mb"], device.isolation())
    landlock.settle(device.zygote_env(), limits.scratch)
    channel = Channel(socket.socket(fileno=sock))
    started: Started = {"isolation": jail.enter(limits)}
    tf32.use(request["float32"])
    try:
        device.enter(limits.memory_mb)
    except EnvironmentNotReady as exc:
        started["unfit"] = str(exc)
    channel.send(started)
    Runner(channel, memory, backend, limits.scratch, snapshot).serve()
    # This walks the heap: if the candidate wrote beyond an allocation, the runner ends here with SIGABRT.
    libc.LIBC.malloc_trim(0)


if __name__ == "__main__":
    main()
    os._exit(0)
