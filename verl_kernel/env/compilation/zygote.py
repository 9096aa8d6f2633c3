# SPDX-License-Identifier: Apache-2.0
"""The process that has Triton's compiler loaded and forks a jailed compiling process per evaluation.

Run by the judge as `python -m verl_kernel.env.compilation.zygote <fd> <target>`. It is no zygote of runners: a process
that has imported Triton for interpreting cannot compile, and the other way round. A forked process answers `compile`
requests, one launch at a time, and runs text of kernels through the compiler; none of the candidate's host code.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import tempfile
from importlib.metadata import version
from typing import NoReturn

from verl_kernel.env.compilation.compiler import Compiler, prepare
from verl_kernel.env.compilation.description import Unit
from verl_kernel.env.compilation.targets import TARGETS
from verl_kernel.env.ipc import fork_loop
from verl_kernel.env.ipc.channel import Channel, ChannelClosed
from verl_kernel.env.ipc.messages import Compiled
from verl_kernel.env.ipc.zygote_messages import ForkRequest, Ready, Started
from verl_kernel.env.sandbox import gpu_variables, jail, landlock, own_paths
from verl_kernel.env.sandbox.isolation import IsolationProfile
from verl_kernel.env.sandbox.scratch import CANDIDATE_FILE

_PROFILE = IsolationProfile(may_start_programs=True, file_bytes=256 << 20, open_files=256)
"""ptxas is a program, and machine code can be long."""


def main() -> None:
    """Serve the judge behind the descriptor and for the target named on the command line."""
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    channel.send(_prepare(sys.argv[2]))
    fork_loop.serve(channel, _become_compiler)


def _prepare(name: str) -> Ready:
    jail.hide_memory()
    jail.leave_network()
    fork_loop.adopt_orphans()
    sys.dont_write_bytecode = True
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        try:
            prepare(TARGETS[name])
        except Exception as exc:  # noqa: BLE001  Triton says in many ways that it lacks a target or its assembler
            return Ready(ready={}, unfit=_unfit(name, exc))
    landlock.readable()
    gc.collect()
    gc.freeze()
    return Ready(ready={"triton": version("triton")})


def _unfit(name: str, exc: Exception) -> str:
    reason = " ".join(str(exc).split())[:300] or type(exc).__name__
    triton = f"Triton {version('triton')}"
    return (
        f"kernelgym.compile_for is {name}, for which the installed {triton} cannot compile ({reason}): "
        "install a wheel of Triton with ptxas that knows the target, or set it to another target or off"
    )


def _become_compiler(request: ForkRequest, fds: list[int]) -> None:
    sock, _, output, _ = fds
    fork_loop.settle_descriptors(output, sock)
    limits = jail.Limits(request["scratch"], request["memory_mb"], _PROFILE)
    own_paths.settle(gpu_variables.kept(os.environ), limits.scratch)
    channel = Channel(socket.socket(fileno=sock))
    channel.send(Started(isolation=jail.enter(limits)))
    _serve(channel, f"{limits.scratch}/{CANDIDATE_FILE}")


def _serve(channel: Channel, file: str) -> None:
    compiler: Compiler | None = None
    while True:
        try:
            request = channel.recv()
        except ChannelClosed:
            return
        if "exit" in request:
            return
        compiler = compiler or Compiler(file)
        outcome = compiler.compile(Unit.from_json(request["compile"]))
        channel.send(Compiled(compiled=outcome.to_json()))


def _start() -> NoReturn:
    main()
    os._exit(0)


if __name__ == "__main__":
    _start()
