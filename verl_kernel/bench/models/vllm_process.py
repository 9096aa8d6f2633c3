# SPDX-License-Identifier: Apache-2.0
"""Runs vLLM's OpenAI server in a process that ends together with the process that started it.

Run as `python -m verl_kernel.bench.models.vllm_process <fd> <arguments of vllm serve>` in a separate process group.
The descriptor is a pipe to which the owner never writes: end of file means that the owner has ended, for any reason,
and then the whole group is killed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from verl_kernel.cpu.patches import patch_vllm_version

# At import: vLLM spawns its engine, and a spawned process imports the main module of its parent before anything else.
patch_vllm_version()


def main() -> None:
    """Serve until the owner has ended."""
    fd = int(sys.argv[1])
    os.set_inheritable(fd, False)
    threading.Thread(target=_end_with_owner, args=(fd,), daemon=True).start()
    from vllm.entrypoints.cli.main import main as serve

    sys.argv = ["vllm", "serve", *sys.argv[2:]]
    serve()


def _end_with_owner(fd: int) -> None:
    os.read(fd, 1)  # returns only at end of file, when the owner has ended
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
