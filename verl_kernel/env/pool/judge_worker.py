# SPDX-License-Identifier: Apache-2.0
"""The judge's process: a reference that hangs or crashes ends this process and not the caller.

A pool runs it as `python -m verl_kernel.env.pool.judge_worker <fd> <device>`. Both ends are trusted, so requests,
results and exceptions are pickled. A thread reads requests all the time: end of file means that the owner has died, and
the process exits at once. The zygote then reads end of file and exits, and so does the runner.
"""

from __future__ import annotations

import gc
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from verl_kernel.env.judge.processes.own_time import OwnTime, backstop_s
from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool.limits import REFERENCE_HUNG
from verl_kernel.env.request import AuditRequest, EvalRequest
from verl_kernel.env.sandbox import jail
from verl_kernel.errors import EnvironmentNotReady, VerlKernelError, cannot_load

if TYPE_CHECKING:
    from verl_kernel.env.judge.judge import Judge

Request = EvalRequest | AuditRequest
_LOOK_S = 1.0
_IDLE_S = 5.0
"""Seconds between two calls of `Judge.rest` while no request arrives."""


def main() -> None:
    """Serve the owner of the descriptor named on the command line."""
    with suppress(OSError):
        jail.hide_memory()
    try:
        from verl_kernel.env.comparison import tf32
        from verl_kernel.env.judge.processes.zygote import fork_zygote

        forked = fork_zygote(sys.argv[2], serve_as_zygote)
        from verl_kernel.env.judge.judge import Judge  # imports triton: after the fork of the zygote
    except ImportError as exc:
        Connection(int(sys.argv[1])).send(EnvironmentNotReady(cannot_load(exc)))
        return
    tf32.use("ieee")
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    options, seed = connection.recv()
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(connection, requests), daemon=True).start()
    try:
        judge = Judge(options, seed, lambda: limit(options), forked)
        judge.warm_up()
        connection.send(judge.model)
    except VerlKernelError as exc:
        connection.send(exc)
        return
    while True:
        connection.send(answer(judge, _next(judge, requests)))


def serve_as_zygote(fd: int, device: str) -> None:
    """Become the zygote of runners behind the descriptor `fd`."""
    from verl_kernel.env.runner.zygote import serve  # in the forked process: the judge has no use for a runner's code

    serve(fd, device)


def _next(judge: Judge, requests: queue.SimpleQueue[Request]) -> Request:
    while True:
        with suppress(queue.Empty):
            return requests.get(timeout=_IDLE_S)
        judge.rest()


def answer(judge: Judge, request: Request) -> object:
    """Return what a request asks for, or the error that it ended with."""
    try:
        return judge.audit(request.task) if isinstance(request, AuditRequest) else judge.judge(request)
    except VerlKernelError as exc:
        bare = exc.with_traceback(None)
        bare.__cause__ = bare.__context__ = None
    gc.collect()  # exception and frames form a cycle, and the frames would keep shared memory alive
    return bare


def _read(connection: Connection[Any, Any], requests: queue.SimpleQueue[Request]) -> None:
    with suppress(EOFError, OSError):
        while True:
            requests.put(connection.recv())
    os._exit(0)


@contextmanager
def limit(options: GymOptions) -> Iterator[None]:
    """End this process if what is done in the body exceeds `reference_timeout_s`."""
    finished = threading.Event()
    threading.Thread(target=_watch, args=(options.reference_timeout_s, finished), daemon=True).start()
    try:
        yield
    finally:
        finished.set()


def _watch(limit_s: float, finished: threading.Event) -> None:
    # A thread: the reference may hang in C code, where no signal handler of Python runs.
    own_time, deadline = OwnTime(os.getpid()), time.monotonic() + backstop_s(limit_s)
    # A longer time between two looks counts as a pause of the machine, and a reference that sleeps would never be late.
    while not finished.wait(min(_LOOK_S, max(0.1, limit_s - own_time.used_s()))):
        if own_time.is_over(limit_s) or time.monotonic() >= deadline:
            os._exit(REFERENCE_HUNG)
    own_time.close()


if __name__ == "__main__":
    main()
