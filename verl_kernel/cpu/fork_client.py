# SPDX-License-Identifier: Apache-2.0
"""Takes the place of a Python process that the fork server (`verl_kernel.cpu.fork_server`) runs, until it ends.

This file is run directly and uses only the standard library: raylet runs it instead of Ray's `setup_worker.py`, and
multiprocessing runs it before `-c CODE`. It sends its arguments, environment and open files to the server, forwards
signals, and ends as the process ends. If there is no server, or the process needs a fresh interpreter, it becomes that
interpreter.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

ADDRESS = "VERL_KERNEL_FORK_SERVER"
"""Environment variable that holds the server's name among the abstract Unix sockets."""
_HARMLESS_FLAGS = {"-B", "-s", "-S", "-u"}
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_MAX_FDS = 64
"""Largest number of open files that are passed on."""


def main(argv: list[str]) -> NoReturn:
    """Run the program of this command line, forked or in a fresh interpreter."""
    alone, program, variables = argv, python_program(argv), dict[str, str]()
    if "-c" not in argv:
        program, variables = ray_worker(argv)
        worker = next(arg for arg in argv if arg.endswith(".py"))
        alone = [str(Path(worker).with_name("setup_worker.py")), *argv]
    answer = ask(program, variables) if program else None
    if answer is None:
        os.execv(sys.executable, [sys.executable, *alone])
    follow(*answer)


def python_program(argv: list[str]) -> list[str] | None:
    """Return `-c`, the code and its arguments; None without `-c` or if flags require a fresh interpreter."""
    where = argv.index("-c") if "-c" in argv else len(argv)
    return argv[where:] or None if _HARMLESS_FLAGS.issuperset(argv[:where]) else None


def ray_worker(argv: list[str]) -> tuple[list[str] | None, dict[str, str]]:
    """Return command line and variables of a Ray worker; no command line if it must start in another way than usual."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--serialized-runtime-env-context", default="{}")
    parser.add_argument("--language", default="")
    options, remaining = parser.parse_known_args(argv)
    context = json.loads(options.serialized_runtime_env_context)
    variables: dict[str, str] = context.get("env_vars") or {}
    is_usual = (
        options.language == "PYTHON"
        and context.get("py_executable", sys.executable) == sys.executable
        and not (context.get("command_prefix") or context.get("override_worker_entrypoint"))
        and not any("$" in value for value in variables.values())
    )
    return ([arg for arg in remaining if arg not in _HARMLESS_FLAGS] if is_usual else None), variables


def ask(program: list[str], variables: dict[str, str]) -> tuple[socket.socket, int] | None:
    """Ask the server to fork; return the connection and the process's id, or None if it refuses."""
    fds = [fd for fd in (int(path.name) for path in Path("/proc/self/fd").iterdir()) if _is_open(fd)][:_MAX_FDS]
    request = {
        "argv": program,
        "env": {**os.environ, **variables},
        "cwd": str(Path.cwd()),
        "fds": fds,
        "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
    }
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.connect("\0" + os.environ[ADDRESS])
        socket.send_fds(sock, [json.dumps(request).encode()], fds)
        answer = json.loads(sock.recv(4096) or b"{}")
    except (KeyError, OSError):
        return None
    return (sock, answer["pid"]) if "pid" in answer else None


def follow(sock: socket.socket, pid: int) -> NoReturn:
    """Forward signals to the process and end as it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in _PASSED_ON:
        signal.signal(number, lambda number, frame: os.kill(pid, number))
    # Close all files: a pipe to the process must not stay open because of this client.
    os.closerange(3, sock.fileno())
    answer = json.loads(sock.recv(4096) or b"{}")
    status = answer.get("status", 1)
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:  # the directory listing's own descriptor
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1:])
