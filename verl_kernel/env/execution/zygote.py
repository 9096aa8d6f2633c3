# SPDX-License-Identifier: Apache-2.0
"""The process that has Triton's compiler and the executor loaded and forks a jailed executing process per runner.

Run by the judge as `python -m verl_kernel.env.execution.zygote <fd> <unused>`. A forked process has two channels: the
runner's, for launches, and the judge's, for reports. It holds none of the judge's secrets, only tensors of launches.
"""

from __future__ import annotations

import gc
import os
import select
import socket
import sys
import tempfile
from contextlib import suppress
from importlib.metadata import version
from typing import NoReturn

from verl_kernel.env.compilation.compiler import compile_trial_kernel
from verl_kernel.env.execution.arena import Arena
from verl_kernel.env.execution.launches import Launches
from verl_kernel.env.executor import driver
from verl_kernel.env.executor.kernel import Kernel
from verl_kernel.env.ipc import fork_loop
from verl_kernel.env.ipc.channel import Channel, ChannelClosed, ProtocolError
from verl_kernel.env.ipc.zygote_messages import ForkRequest, Ready, Started
from verl_kernel.env.sandbox import gpu_variables, jail, landlock, own_paths
from verl_kernel.env.sandbox.isolation import IsolationProfile
from verl_kernel.env.sandbox.scratch import CANDIDATE_FILE

_PROFILE = IsolationProfile(may_start_programs=True, file_bytes=256 << 20, open_files=256)
"""Triton writes what it compiles to files."""


def main() -> None:
    """Serve the judge behind the descriptor named on the command line."""
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    channel.send(_prepare())
    fork_loop.serve(channel, _become_executor)


def _prepare() -> Ready:
    jail.hide_memory()
    jail.leave_network()
    fork_loop.adopt_orphans()
    sys.dont_write_bytecode = True
    driver.activate()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        made = compile_trial_kernel()
        Kernel(made.asm["ptx"], made.metadata.num_warps, made.metadata.shared)  # compiles what most kernels call
    landlock.readable()
    gc.collect()
    gc.freeze()
    return Ready(ready={"triton": version("triton"), "llvmlite": version("llvmlite")})


def _become_executor(request: ForkRequest, fds: list[int]) -> None:
    sock, memory, output, _, link = fds
    arena = Arena(memory, request["memory_bytes"])
    fork_loop.settle_descriptors(output, sock, link)
    limits = jail.Limits(request["scratch"], request["memory_mb"], _PROFILE)
    own_paths.settle(gpu_variables.kept(os.environ), limits.scratch)
    judge, runner = (Channel(socket.socket(fileno=fd)) for fd in (sock, link))
    judge.send(Started(isolation=jail.enter(limits)))
    with suppress(ChannelClosed):
        _serve(judge, runner, Launches(f"{limits.scratch}/{CANDIDATE_FILE}", arena))


def _serve(judge: Channel, runner: Channel, launches: Launches) -> None:
    """Answer both until the judge closes its end."""
    asked = [judge, runner]
    while True:
        for channel in select.select(asked, [], [])[0]:
            if channel is judge:
                request = judge.recv()
                if "exit" in request:
                    return
                judge.send(launches.report(request["report"], request["watch"]))
            elif not _launch(runner, launches):
                asked = [judge]


def _launch(runner: Channel, launches: Launches) -> bool:
    """Run what the runner asks for; whether it is still there."""
    try:
        runner.send(launches.run(runner.recv()["launch"]))
    except ChannelClosed:
        return False
    except (ProtocolError, LookupError) as exc:
        launches.refuse(f"a launch cannot be read: {type(exc).__name__}: {exc}")
        runner.close()
        return False
    return True


def _start() -> NoReturn:
    main()
    os._exit(0)


if __name__ == "__main__":
    _start()
