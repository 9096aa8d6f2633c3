# SPDX-License-Identifier: Apache-2.0
"""A judge in a process of its own, where a reference may hang or crash without taking its caller along.

Run by the pool as `python -m verl_kernel.env.worker <fd> <device>`. Both ends are trusted, so jobs, results and
exceptions are pickled. A thread reads jobs all the time: end of file means that the owner is gone, and the process
ends at once; its zygote and the runner see that in their turn.
"""

from __future__ import annotations

import gc
import os
import queue
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from verl_kernel.env import jail
from verl_kernel.env.judge_process import REFERENCE_HUNG
from verl_kernel.env.options import GymOptions
from verl_kernel.errors import EnvironmentNotReady, VerlKernelError, cannot_load

if TYPE_CHECKING:
    from verl_kernel.env.judge import Judge


def main() -> None:
    """Serve the owner of the descriptor named on the command line."""
    with suppress(OSError):
        jail.hide_memory()
    try:
        from verl_kernel.env.twin import fork_zygote

        twin = fork_zygote(sys.argv[2])
        from verl_kernel.env.judge import Judge  # imports triton, which the zygote must have done in its own way
    except ImportError as exc:
        Connection(int(sys.argv[1])).send(EnvironmentNotReady(cannot_load(exc)))
        return
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    options, seed = connection.recv()
    jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(connection, jobs), daemon=True).start()
    try:
        judge = Judge(options, seed, lambda: _limit(options), twin)
        judge.warm_up()
        connection.send(None)
    except VerlKernelError as exc:
        connection.send(exc)
        return
    while True:
        connection.send(_answer(judge, jobs.get()))


def _answer(judge: Judge, job: Any) -> object:
    try:
        return judge.evaluate(*job)
    except VerlKernelError as exc:
        bare = exc.with_traceback(None)
        bare.__cause__ = bare.__context__ = None
    gc.collect()  # the frames of a failure, in cycles with it, hold shared memory
    return bare


def _read(connection: Connection[Any, Any], jobs: queue.SimpleQueue[Any]) -> None:
    with suppress(EOFError, OSError):
        while True:
            jobs.put(connection.recv())
    os._exit(0)


@contextmanager
def _limit(options: GymOptions) -> Iterator[None]:
    timer = threading.Timer(options.reference_timeout_s, lambda: os._exit(REFERENCE_HUNG))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


if __name__ == "__main__":
    main()
