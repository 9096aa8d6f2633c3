# SPDX-License-Identifier: Apache-2.0
"""The process that has Triton's compiler loaded and forks a jailed compiling process per evaluation.

The judge runs it as `python -m verl_kernel.env.compilation.zygote <fd> <targets>`. It is not the zygote of runners: its
children execute no kernels. A child answers `compile` requests for one of the targets, one launch at a time, or makes
PTX or native code for an executing process. It passes text of kernels to the compiler, and runs none of the candidate's
host code.
"""

from __future__ import annotations

import mmap
import os
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from verl_kernel.env.compilation import translation
from verl_kernel.env.compilation.compiler import Compiler, prepare
from verl_kernel.env.compilation.description import Unit
from verl_kernel.env.compilation.outcome import Refusal
from verl_kernel.env.compilation.targets import TARGETS
from verl_kernel.env.ipc import fork_loop
from verl_kernel.env.ipc.channel import Channel, ChannelClosed
from verl_kernel.env.ipc.messages import Compiled, ForkRequest, Made, NativeRequest, Ready, Refused, Started, Translated
from verl_kernel.env.sandbox import gpu_isolation, jail, landlock
from verl_kernel.env.sandbox.isolation import IsolationProfile
from verl_kernel.env.sandbox.scratch import CANDIDATE_FILE

_PROFILE = IsolationProfile(may_start_programs=True, file_bytes=256 << 20, open_files=256)
"""ptxas is a program, and machine code can be long."""


def main() -> None:
    """Serve the judge behind the descriptor, for the targets named on the command line (none: only to execute)."""
    serve(int(sys.argv[1]), sys.argv[2].split(",") if sys.argv[2] else [])


def serve(fd: int, targets: Sequence[str]) -> None:
    """Serve the judge behind the descriptor `fd`, for these targets."""
    sys.modules.pop("torch", None)  # it is loaded in a process that was forked from a judge (`without_torch`)
    channel = Channel(socket.socket(fileno=fd))
    channel.send(_prepare(targets))
    fork_loop.serve(channel, _become_compiler)


def _prepare(names: Sequence[str]) -> Ready:
    with fork_loop.inherited(), tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        if unfit := next(filter(None, map(_failure, ["", *names])), None):
            return Ready(ready={}, unfit=unfit)
    return Ready(ready={"triton": version("triton")})


def _failure(name: str) -> str | None:
    """Prepare for a target, or for the emulator if no target is named; return why this Triton cannot."""
    try:
        translation.prepare() if not name else prepare(TARGETS[name])
    except Exception as exc:  # noqa: BLE001  Triton says in many ways that it lacks a target or its assembler
        return _unfit(name, " ".join(str(exc).split())[:300] or type(exc).__name__)
    return None


def _unfit(name: str, reason: str) -> str:
    triton = f"the installed Triton {version('triton')}"
    if not name:
        return f"{triton} cannot compile what the emulator runs ({reason}): install a wheel of Triton for this machine"
    return (
        f"kernelgym.compile_for names {name}, for which {triton} cannot compile ({reason}): install a wheel of Triton "
        f"with {TARGETS[name].TOOLS} that knows the target, or name others ({', '.join(TARGETS)}) or off"
    )


def _become_compiler(request: ForkRequest, fds: list[int]) -> None:
    sock, memory, output, _ = fds
    shared = mmap.mmap(memory, request["memory_bytes"])
    fork_loop.replace_descriptors(output, sock)
    limits = jail.Limits(request["scratch"], request["memory_mb"], _PROFILE)
    landlock.settle(gpu_isolation.kept(os.environ), limits.scratch)
    channel = Channel(socket.socket(fileno=sock))
    channel.send(Started(isolation=jail.enter(limits)))
    with suppress(ChannelClosed):
        _serve(channel, shared, f"{limits.scratch}/{CANDIDATE_FILE}")


def _serve(channel: Channel, shared: mmap.mmap, file: str) -> None:
    """Answer requests until the judge sends `exit`; the process is in the folder of the candidate's file."""
    compiler: Compiler | None = None
    while "exit" not in (request := channel.recv()):
        if "translate" in request:
            channel.send(_translated(request["translate"], shared))
        elif "native" in request:
            channel.send(_native(request["native"], shared))
        else:
            compiler = compiler or Compiler(file, TARGETS[request["target"]])
            channel.send(Compiled(compiled=compiler.compile(Unit.from_json(request["compile"])).to_json()))


def _translated(unit: dict[str, Any], shared: mmap.mmap) -> Translated | Refused:
    translated = translation.translate(Unit.from_json(unit), CANDIDATE_FILE)
    if isinstance(translated, Refusal):
        return Refused(refused=asdict(translated))
    ptx, reply = translated
    return reply if _put(shared, ptx.encode()) else _too_long()


def _native(request: NativeRequest, shared: mmap.mmap) -> Made | Refused:
    native = translation.native(shared[: request["ptx"]].decode(), request)
    if isinstance(native, Refusal):
        return Refused(refused=asdict(native))
    return Made(made=len(native)) if _put(shared, native) else _too_long()


def _put(shared: mmap.mmap, data: bytes) -> bool:
    if len(data) > len(shared):
        return False
    shared[: len(data)] = data
    return True


def _too_long() -> Refused:
    return Refused(refused=asdict(Refusal("CompileMemory", "the code of this kernel is too long", 0)))


if __name__ == "__main__":
    main()
    os._exit(0)
