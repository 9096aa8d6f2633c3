# SPDX-License-Identifier: Apache-2.0
"""Hydra callback of the CPU recipe: Ray's workers and vLLM's engine are forked from one process (`fork_server`).

A run has about ten Python processes, and otherwise each of them would import torch, transformers and vLLM again, in
succession on two cores.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from ray._private import ray_constants

from verl_kernel import cpu
from verl_kernel.cpu import fork_client


class PreloadCallback(Callback):  # type: ignore[misc]
    """Starts the fork server while the driver checks its configuration and starts Ray."""

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Start the fork server, but only on the CPU platform."""
        if cpu.is_active():
            start(_worker_variables(config))


def start(variables: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start the fork server with these additional variables, and make Ray start its workers through it.

    The server ends with this process.
    """
    name = f"verl_kernel_{os.getpid()}_{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind("\0" + name)
        listener.listen(64)
        command = [sys.executable, "-m", "verl_kernel.cpu.fork_server", str(listener.fileno()), str(os.getpid())]
        process = subprocess.Popen(
            command, env={**os.environ, **variables}, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL
        )
    os.environ[fork_client.ADDRESS] = name
    # Ray joins this to its own script's folder; an absolute path replaces the folder.
    ray_constants.SETUP_WORKER_FILENAME = fork_client.__file__
    return process


def _worker_variables(config: DictConfig) -> dict[str, str]:
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    chosen = OmegaConf.select(config, "ray_kwargs.ray_init.runtime_env.env_vars") or {}
    return {**get_ppo_ray_runtime_env(config)["env_vars"], **chosen}
