# SPDX-License-Identifier: Apache-2.0
"""A process that has imported torch, transformers and vLLM, and forks the Python processes of a run.

`fork_client` takes the place of a forked process and sends its command line, environment, folder and open files. If a
client is killed, its process ends too. Run as `python -m verl_kernel.cpu.fork_server <fd> <pid>`
with the descriptor that clients connect to and the process to end with.

Ray reads its environment variables, some of which raylet sets for one worker, when it is imported. So neither Ray nor
verl, which imports it, can be imported in advance.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import logging
import os
import selectors
import signal
import socket
import struct
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from verl_kernel.cpu import patches
from verl_kernel.cpu.forked_process import become, fork_spawned

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
"""Modules that verl and vLLM import and that do not import Ray."""
_PR_SET_PDEATHSIG = 1
"""Option of prctl(2) for the signal that a process gets when its parent ends."""

_MAX_BYTES = 1 << 18
"""Largest request of a client: its arguments and its environment as JSON."""
_MAX_FDS = 64
"""Largest number of open files that a client passes on."""
_READ_AT_START = ("LD_LIBRARY_PATH", "OMP_NUM_THREADS", "PYTHONHASHSEED", "PYTHONHOME", "PYTHONPATH")
"""Environment variables that only a new process would heed."""


def main() -> None:
    """Serve on the descriptor of the command line until the driver ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    fd, driver = map(int, sys.argv[1:])
    if os.getppid() == driver:
        preload()
        serve(socket.socket(fileno=fd))


def preload() -> None:
    """Import the modules that the processes of a run have in common."""
    patches.patch_vllm_version()
    for module in MODULES:
        try:
            importlib.import_module(module)
        except Exception as exc:  # noqa: BLE001  a process that needs the module reports the error itself
            logger.warning("not imported ahead of the workers: %s: %s", module, exc)
    fork_spawned()


def serve(listener: socket.socket) -> NoReturn:
    """Fork for every client of the same user; never returns."""
    # Collections in the forks skip frozen objects, so that the pages of these stay shared.
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
        """Wait for clients and for ends of processes, and handle them."""
        for key, _ in self._selector.select():
            if key.fd in self._selector.get_map():
                key.data()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        # An abstract socket has no file permissions: any user may connect.
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
            _send_answer(client, {})
            return
        pid = _fork()
        if pid == 0:
            become(request, fds)
        _send_answer(client, {"pid": pid})
        end = os.pidfd_open(pid)
        self._selector.register(end, selectors.EVENT_READ, lambda: self._process_ended(client, pid, end))
        self._selector.register(client, selectors.EVENT_READ, lambda: self._client_gone(client, pid))

    def _client_gone(self, client: socket.socket, pid: int) -> None:
        self._selector.unregister(client)
        os.kill(pid, signal.SIGKILL)

    def _process_ended(self, client: socket.socket, pid: int, end: int) -> None:
        _, status = os.waitpid(pid, 0)
        self._selector.unregister(end)
        os.close(end)
        if client in self._selector.get_map():
            self._selector.unregister(client)
            _send_answer(client, {"status": os.waitstatus_to_exitcode(status)})
        client.close()


def _send_answer(client: socket.socket, answer: dict[str, int]) -> None:
    # Ray kills a worker that is late, its client may be gone: then its process ends too (`_client_gone`), and no other.
    with suppress(ConnectionError):
        client.send(json.dumps(answer).encode())


def _fork() -> int:
    with warnings.catch_warnings():
        # Python 3.12 warns about threads: the only one here is the allocator's, which is safe to fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def needs_own_python(environment: dict[str, str]) -> bool:
    """Whether a variable that only a new process would heed differs from ours."""
    if any(environment.get(name) != os.environ.get(name) for name in _READ_AT_START):
        return True
    # vLLM puts torch's OpenMP library here, which torch has already loaded.
    loaded = Path("/proc/self/maps").read_text()
    return not all(path in loaded for path in environment.get("LD_PRELOAD", "").split(":"))


def _uid(client: socket.socket) -> int:
    """Return the user id of a connection's client."""
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])


if __name__ == "__main__":
    main()
