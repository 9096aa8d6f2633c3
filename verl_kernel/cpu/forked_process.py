# SPDX-License-Identifier: Apache-2.0
"""Turns a fork of the fork server into the process that a client asked for."""

from __future__ import annotations

import atexit
import fcntl
import multiprocessing.spawn
import os
import random
import runpy
import signal
import sys
import threading
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from verl_kernel.cpu import fork_client

_ABOVE = 512
"""First of the descriptors that stay free while the lower ones are assigned."""


def become(request: dict[str, Any], fds: list[int]) -> NoReturn:
    """Turn this fork into the process that the request describes, and end with it."""
    status: Any = 1
    try:
        _take_over(request, fds)
        _run(request["argv"])
        status = 0
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except BaseException:  # noqa: BLE001  as at the end of any Python program
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _take_over(request: dict[str, Any], fds: list[int]) -> None:
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, _ABOVE) for fd in fds]
    os.closerange(3, _ABOVE)
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
    is_script = argv[0] != "-c"
    if not getattr(sys.flags, "safe_path", False):  # known since Python 3.11
        sys.path[0] = str(Path(argv[0]).parent) if is_script else ""
    if is_script:
        sys.argv = argv
        runpy.run_path(argv[0], run_name="__main__")
        return
    sys.argv = ["-c", *argv[2:]]
    main = sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(argv[1], "<string>", "exec"), main.__dict__)


def fork_spawned() -> None:
    """Have multiprocessing's spawned processes forked too (vLLM's engine core is one)."""
    original = multiprocessing.spawn.get_command_line

    def get_command_line(**kwargs: Any) -> list[str]:
        python, *arguments = original(**kwargs)
        return [python, "-S", fork_client.__file__, *arguments]

    multiprocessing.spawn.get_command_line = get_command_line
