# SPDX-License-Identifier: Apache-2.0
"""The process that forks a jailed judge for each task (`kernelgym.references: jailed`), and that judge.

`TaskJudges` runs it as `python -m verl_kernel.env.pool.task_judge <fd> <folder>`; the folder keeps the emulator's
native code. It has loaded all that a judge and its zygotes need, and is never told of a task, a seed or an option, so
that no forked process finds another task in its memory. Each fork makes three processes. The outermost one is not
jailed and only waits: its end is the end of the others. The next one is the first in the namespaces. The judge is its
child, forks the zygotes, and runs the reference: whatever it says, its owner reads as a hostile process's words.
"""

from __future__ import annotations

import gc
import os
import resource
import socket
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, cast

import torch

import verl_kernel
from verl_kernel.env.comparison import tf32
from verl_kernel.env.compilation import zygote as compile_zygote
from verl_kernel.env.devices import CPU_VARIABLES, warmup
from verl_kernel.env.devices.cpu import driver, launches, tuning
from verl_kernel.env.devices.cpu.device import CpuDevice
from verl_kernel.env.execution import zygote as execute_zygote
from verl_kernel.env.ipc import fork_loop
from verl_kernel.env.ipc.channel import Channel, ChannelClosed, ProtocolError
from verl_kernel.env.ipc.messages import ForkRequest, Ready, TaskRequest
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.judge.judge_processes import JudgeProcesses
from verl_kernel.env.judge.processes.zygote import COMPILER_VARIABLES, fork_server, preload
from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool.judge_worker import answer, limit, serve_as_zygote
from verl_kernel.env.pool.task_judges import DISK_MB, answer_as_json, request_from_json
from verl_kernel.env.sandbox import jail, landlock, libc, namespaces
from verl_kernel.env.sandbox.child_environment import child_environment
from verl_kernel.env.sandbox.isolation import IsolationProfile

LOADED = driver, launches, tuning, warmup
"""What `preload` would load after the fork."""
_PROCESSES = 512
"""Processes and threads of a jail; a judge with its zygotes has about twenty."""
_NO_LESS = ("profile", "compiled_kernels", "memory_findings", "launches", "top_kernels", "fallback_ops")
"""Fields of a result that are left out where it is too long for a message."""


def main() -> None:
    """Serve the owner of the descriptor named on the command line."""
    jail.hide_memory()
    fork_loop.adopt_orphans()
    sys.dont_write_bytecode = True
    torch.set_num_threads(1)
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    execute_zygote.load_library(sys.argv[2])
    landlock.readable()
    jail.closed_paths()
    has_namespaces = namespaces.are_granted()
    gc.collect()
    gc.freeze()
    libc.collapse()
    channel.send(Ready(ready={"torch": torch.__version__}))
    fork_loop.serve(channel, partial(_become_outermost, has_namespaces))


def _become_outermost(has_namespaces: bool, request: ForkRequest, fds: list[int]) -> NoReturn:
    """Fork the first process of the jail, wait for its end, and end with its status."""
    jail.die_with_parent()
    sock, _, output, _ = fds
    fork_loop.replace_descriptors(output, sock)
    limits = jail.Limits(request["scratch"], request["memory_mb"], _profile(), os.getpid())
    if has_namespaces:
        namespaces.leave()
    first = os.fork()
    if first == 0:
        fork_loop.end_after(lambda: _become_first(has_namespaces, limits, sock))
    os.close(sock)
    os._exit(_status(os.waitpid(first, 0)[1]))


def _profile() -> IsolationProfile:
    return IsolationProfile(
        readable=("/proc", "/sys/fs/cgroup"),
        may_start_programs=True,
        may_judge=True,
        limits_addresses=False,
        file_bytes=resource.RLIM_INFINITY,  # it counts for memory that is shared, too
        open_files=1024,
        processes=_threads_of_user() + _PROCESSES,
    )


def _threads_of_user() -> int:
    """Return how many threads the user of the jail has already: none, if root makes a user for it."""
    count = 0
    if os.geteuid() == 0:
        return count
    for path in Path("/proc").iterdir():
        with suppress(OSError):  # it has ended
            if path.name.isdigit() and path.stat().st_uid == os.geteuid():
                count += sum(1 for _ in (path / "task").iterdir())
    return count


def _become_first(has_namespaces: bool, limits: jail.Limits, sock: int) -> None:
    """Enter the jail, fork the judge, and collect all processes that end until the judge does."""
    in_force = [namespaces.NAME] if has_namespaces else []
    if has_namespaces:
        namespaces.furnish(limits.scratch, DISK_MB)
    variables = _environment(limits.scratch)
    landlock.settle(variables, limits.scratch)
    in_force += jail.enter(limits)
    judge = os.fork()
    if judge == 0:
        jail.die_with_parent()
        fork_loop.end_after(lambda: _serve(Channel(socket.socket(fileno=sock)), in_force))
    os.close(sock)
    # The first process of a namespace inherits all orphans; when it ends, Linux kills the rest.
    while (ended := os.wait())[0] != judge:
        pass
    os._exit(_status(ended[1]))


def _environment(folder: str) -> dict[str, str]:
    """Return the environment, in which Python finds this package though the folder around it cannot be read."""
    link = Path(folder, "packages", "verl_kernel")
    link.parent.mkdir()
    link.symlink_to(Path(verl_kernel.__file__).parent)
    variables = child_environment()
    return {**variables, "PYTHONPATH": os.pathsep.join((str(link.parent), variables["PYTHONPATH"]))}


def _status(waited: int) -> int:
    code = os.waitstatus_to_exitcode(waited)
    return code if code >= 0 else 128 - code


def _serve(channel: Channel, in_force: list[str]) -> None:
    """Answer the owner's requests, all about one task, until it closes its end."""
    channel.send({"isolation": " ".join(in_force)})
    with suppress(ChannelClosed):
        options = GymOptions.from_node(channel.recv()["options"])
        processes = _processes(options)
        tf32.use("ieee")
        # Warmed up before the task is known, by a judge without a seed: the processes serve the real one.
        judge = Judge(options, processes=processes)
        judge.warm_up()
        channel.send({"model": judge.model})
        request = cast(TaskRequest, channel.recv())
        judge = Judge(options, request["seed"], partial(limit, options), processes=processes)
        while True:
            _send(channel, answer(judge, request_from_json(request)))
            request = cast(TaskRequest, channel.recv())


def _processes(options: GymOptions) -> JudgeProcesses:
    """Fork the zygotes: first those that need a Triton whose launches nothing has changed."""
    compiling = fork_server(partial(compile_zygote.serve, targets=options.targets), COMPILER_VARIABLES)
    executing = fork_server(execute_zygote.serve, {})
    preload()
    gc.collect()
    gc.freeze()  # else each collection in the judge would visit what it has just loaded
    runners = fork_server(partial(serve_as_zygote, device="cpu"), CPU_VARIABLES)
    return JudgeProcesses(CpuDevice(), options.targets, runners, compiling, executing)


def _send(channel: Channel, outcome: Any) -> None:
    try:
        channel.send(answer_as_json(outcome))
    except ProtocolError:
        channel.send(answer_as_json(outcome.model_copy(update=dict.fromkeys(_NO_LESS))))


if __name__ == "__main__":
    main()
    os._exit(0)
