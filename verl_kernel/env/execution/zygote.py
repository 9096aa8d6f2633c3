# SPDX-License-Identifier: Apache-2.0
"""The process that has the emulator loaded and forks a jailed executing process per runner.

The judge runs it as `python -m verl_kernel.env.execution.zygote <fd> <folder>`; the folder keeps the library's native
code. A forked process has three channels: one to the runner, for launches, and two to the judge, for reports and for
the code of launches. It compiles nothing of the candidate's, and holds none of the judge's secrets, only tensors of
launches.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.metadata import version

import numpy as np
import numpy.ctypeslib
import numpy.random  # imported here, as numpy would load it and ctypeslib in a forked process

from verl_kernel.env.emulator import code
from verl_kernel.env.emulator.code import ObjectCache
from verl_kernel.env.emulator.copy_stores import Follow
from verl_kernel.env.emulator.kernel import Buffer, Kernel, library
from verl_kernel.env.emulator.library import all
from verl_kernel.env.execution.dataless_launches import SampledLaunches
from verl_kernel.env.execution.launch_arguments import Arena
from verl_kernel.env.execution.launch_summary import tally, work
from verl_kernel.env.execution.sparse_memory import SparseMemory
from verl_kernel.env.ipc import fork_loop
from verl_kernel.env.ipc.channel import Channel, ChannelClosed, Message, ProtocolError
from verl_kernel.env.ipc.messages import CodeRequest, ForkRequest, Ready, Started
from verl_kernel.env.sandbox import gpu_isolation, jail, landlock, libc
from verl_kernel.env.sandbox.isolation import IsolationProfile

# A small launch before any fork: forked processes inherit what a first launch sets up.


_ELEMENTS, _SIGNATURE = 32, {"x": "*fp32", "out": "*fp32"}
_PTX = """.version 8.7
.target sm_89
.address_size 64
.visible .entry doubled(.param .u64 x, .param .u64 out)
.maxntid 32
{
    .reg .b32 %r<2>;
    .reg .f32 %f<3>;
    .reg .b64 %d<6>;
    ld.param.u64 %d0, [x];
    ld.param.u64 %d1, [out];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %d2, %r0, 4;
    add.s64 %d3, %d0, %d2;
    add.s64 %d4, %d1, %d2;
    ld.global.f32 %f0, [%d3];
    add.f32 %f1, %f0, %f0;
    st.global.f32 [%d4], %f1;
    ret;
}
"""


def small_launch() -> np.ndarray:
    """Make the small launch; returns what it wrote, twice the numbers from 0."""
    native = code.make(_PTX, 1, 0).to_bytes()
    kernel, x = Kernel.loaded(code.read(native)), np.arange(_ELEMENTS, dtype=np.float32)
    out = np.zeros_like(x)
    buffers = [Buffer(array.ctypes.data, array.nbytes) for array in (x, out)]
    follow = Follow(["fp32", "fp32"], np.random.default_rng(0))
    count = kernel.launch((1,), [item.address for item in buffers], buffers, follow=follow)
    launch_tally = tally(count, [item.bytes for item in buffers], {"x": 0, "out": 1}, "doubled", _SIGNATURE)
    json.dumps(work("doubled", count, launch_tally, [item.address for item in buffers]))
    return out


_PATIENCE_S = 5.0
"""Seconds for which a runner may leave an answer unread."""


def main() -> None:
    """Serve the judge behind the descriptor, with the folder named on the command line."""
    load_library(sys.argv[2])
    serve(int(sys.argv[1]), libc.collapse)


def serve(fd: int, before_ready: Callable[[], None] = lambda: None) -> None:
    """Serve the judge behind the descriptor `fd`; the library is loaded.

    Args:
        fd: the socket to the judge.
        before_ready: called before the judge is told that processes can be forked.
    """
    small_launch()
    channel = Channel(socket.socket(fileno=fd))
    with fork_loop.inherited():
        ready = Ready(ready={"llvmlite": version("llvmlite")})
    before_ready()
    channel.send(ready)
    fork_loop.serve(channel, _become_emulator)


def load_library(folder: str) -> None:
    """Load functions that most kernels call, from the folder after the first time; fewer if it cannot be used.

    Without Landlock the folder is not used, as a candidate of the same user could write there.
    """
    cache = None
    if landlock.abi():
        with suppress(OSError):
            cache = ObjectCache(folder)
    library().need(all.FIRST if cache is None else all.common(), cache)


def _become_emulator(request: ForkRequest, fds: list[int]) -> None:
    sock, memory, output, _, *links = fds
    # Addresses are reserved here, before the jail limits them.
    arena, sparse = Arena(memory, request["memory_bytes"]), SparseMemory(memory, request["memory_bytes"])
    fork_loop.replace_descriptors(output, sock, *links, sparse.fd)
    limits = jail.Limits(request["scratch"], request["memory_mb"], IsolationProfile())
    landlock.settle(gpu_isolation.kept(os.environ), limits.scratch)
    judge, runner, codes = (Channel(socket.socket(fileno=fd)) for fd in (sock, *links))
    judge.send(Started(isolation=jail.enter(limits)))
    with suppress(ChannelClosed):
        _serve(judge, runner, SampledLaunches(arena, partial(_ask, codes), sparse))


def _ask(codes: Channel, request: CodeRequest) -> tuple[Message, bytes]:
    """Request a launch's code from the judge."""
    codes.send(request)
    reply = codes.recv()
    return reply, codes.recv_bytes(reply.get("code", 0))


def _serve(judge: Channel, runner: Channel, launches: SampledLaunches) -> None:
    """Answer judge and runner until the judge closes its end."""
    channels = [judge, runner]
    runner.sock.settimeout(_PATIENCE_S)
    while True:
        for channel in select.select(channels, [], [])[0]:
            if channel is judge:
                request = judge.recv()
                if "exit" in request:
                    return
                if "begin" in request:
                    launches.start(sampled=request.pop("sampled"), seed=request.pop("begin"), **request)
                else:
                    judge.send(launches.report(request["report"]))
            elif not _launch(runner, launches):
                channels = [judge]


def _launch(runner: Channel, launches: SampledLaunches) -> bool:
    """Run a requested launch once the request is complete; returns whether the runner is still there."""
    try:
        # Read what is there and no more: a runner that sends half a request must not make the judge wait.
        request = runner.feed()
        if request is not None:
            runner.send(launches.run(request["launch"]))
    except ChannelClosed:
        return False
    except (ProtocolError, LookupError) as exc:
        launches.refuse(f"a launch cannot be read: {type(exc).__name__}: {exc}")
        runner.close()
        return False
    return True


if __name__ == "__main__":
    main()
    os._exit(0)
