# SPDX-License-Identifier: Apache-2.0
"""A process with torch, transformers and vLLM imported, which forks the Python processes of a run.

What a forked process is to be comes from `fork_client`, which stands in for it: command line, environment, folder, open
files. A client that is killed takes its process along. Run as `python -m verl_kernel.cpu.fork_server <fd> <driver>`, with
the descriptor that clients connect to and the process to end with.

Ray reads its variables when it is imported, those that raylet makes for one worker among them. So neither Ray nor verl,
which imports it, can be imported ahead.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import json
import logging
import multiprocessing.spawn
import os
import random
import runpy
import selectors
import signal
import socket
import struct
import sys
import threading
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from verl_kernel.cpu import fork_client, patches

logger = logging.getLogger(__name__)

MODULES = (
    "torch.distributed.fsdp",
    "tensordict",
    "transformers",
    "datasets",
    "pandas",
    "accelerate",
    "peft",
    "hydra.utils",
    "torchdata.stateful_dataloader",
    "vllm.engine.arg_utils",
    "vllm.v1.worker.cpu_worker",
    "vllm.entrypoints.openai.chat_completion.protocol",
)
"""What verl and vLLM import that does not import Ray."""
_PR_SET_PDEATHSIG = 1

_MAX_BYTES = 1 << 18
_MAX_FDS = 64
_READ_AT_START = ("LD_LIBRARY_PATH", "OMP_NUM_THREADS", "PYTHONHASHSEED", "PYTHONHOME", "PYTHONPATH")
"""Variables that only a new process would heed."""


def main() -> None:
    """Serve on the descriptor of the command line until the driver ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    fd, driver = map(int, sys.argv[1:])
    if os.getppid() == driver:
        preload()
        serve(socket.socket(fileno=fd))


def preload() -> None:
    """Import what the processes of a run have in common."""
    patches.patch_vllm_version()
    for module in MODULES:
        try:
            importlib.import_module(module)
        except Exception as exc:
            # A process that needs it says so itself.
            logger.warning("not imported ahead of the workers: %s: %s", module, exc)
    fork_spawned()


def serve(listener: socket.socket) -> NoReturn:
    """Fork for every client of the same user; never returns."""
    gc.collect()
    gc.freeze()
    server = _Server(listener)
    while True:
        server.turn()


class _Server:
    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)

    def turn(self) -> None:
        """Wait for clients and ends of processes, and serve them."""
        for key, _ in self._selector.select():
            if key.fd in self._selector.get_map():
                key.data()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if _uid(client) != os.getuid():
            client.close()
            return
        request, fds, *_ = socket.recv_fds(client, _MAX_BYTES, _MAX_FDS)
        if request:
            self._answer(client, json.loads(request), fds)
        for fd in fds:
            os.close(fd)

    def _answer(self, client: socket.socket, request: dict[str, Any], fds: list[int]) -> None:
        if needs_own_python(request["env"]):
            client.send(b"{}")
            return
        pid = os.fork()
        if pid == 0:
            become(request, fds)
        client.send(json.dumps({"pid": pid}).encode())
        end = os.pidfd_open(pid)
        self._selector.register(end, selectors.EVENT_READ, lambda: self._ended(client, pid, end))
        self._selector.register(client, selectors.EVENT_READ, lambda: self._left(client, pid))

    def _left(self, client: socket.socket, pid: int) -> None:
        self._selector.unregister(client)
        os.kill(pid, signal.SIGKILL)

    def _ended(self, client: socket.socket, pid: int, end: int) -> None:
        _, status = os.waitpid(pid, 0)
        self._selector.unregister(end)
        os.close(end)
        if client in self._selector.get_map():
            self._selector.unregister(client)
            client.send(json.dumps({"status": os.waitstatus_to_exitcode(status)}).encode())
        client.close()


def needs_own_python(environment: dict[str, str]) -> bool:
    """Whether a variable that only a new process would heed differs from ours."""
    if any(environment.get(name) != os.environ.get(name) for name in _READ_AT_START):
        return True
    # vLLM names torch's OpenMP library here, which torch has loaded.
    loaded = Path("/proc/self/maps").read_text()
    return not all(path in loaded for path in environment.get("LD_PRELOAD", "").split(":"))


def become(request: dict[str, Any], fds: list[int]) -> NoReturn:
    """Turn this fork into the process that the request describes, and end with it."""
    status: Any = 1
    try:
        _take_over(request, fds)
        _run(request["argv"])
        status = 0
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except BaseException:
        # As at the end of any Python program.
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _take_over(request: dict[str, Any], fds: list[int]) -> None:
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 512) for fd in fds]
    os.closerange(3, 512)
    for fd, number in zip(high, request["fds"], strict=True):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    signal.pthread_sigmask(signal.SIG_SETMASK, request["blocked"])
    random.seed()
    np.random.seed()


def _run(argv: list[str]) -> None:
    sys.argv = argv[:]
    if argv[0] != "-c":
        sys.path[0] = str(Path(argv[0]).parent)
        runpy.run_path(argv[0], run_name="__main__")
        return
    sys.path[0] = ""
    sys.argv = ["-c", *argv[2:]]
    main = sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(argv[1], "<string>", "exec"), main.__dict__)


def fork_spawned() -> None:
    """Have multiprocessing's spawned processes forked too (vLLM's engine core is one)."""
    original = multiprocessing.spawn.get_command_line

    def get_command_line(**kwargs: Any) -> list[str]:
        python, *rest = original(**kwargs)
        return [python, "-S", fork_client.__file__, *rest]

    multiprocessing.spawn.get_command_line = get_command_line  # type: ignore[assignment]


def _uid(client: socket.socket) -> int:
    """User behind a connection."""
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])


if __name__ == "__main__":
    main()
