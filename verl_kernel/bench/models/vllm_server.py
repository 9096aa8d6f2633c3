# SPDX-License-Identifier: Apache-2.0
"""A vLLM server that this process starts, waits for and stops."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from verl_kernel.cpu import ENVIRONMENT
from verl_kernel.errors import ConfigError, EndpointError, EnvironmentNotReady

_GRACE_S, _PAUSE_S = 10.0, 0.5
"""Seconds between SIGTERM and SIGKILL, and between two questions whether a new server answers."""
_ON_A_CPU = ("--dtype", "float32", "--enforce-eager", "--distributed-executor-backend", "uni")
_QUIET = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}


class VllmServer:
    """Serves a model's folder on a free port of this machine; use it as a context manager.

    Args:
        folder: folder of the model, as `from_pretrained` reads it.
        log: file for the server's output.
        arguments: further arguments of `vllm serve`; they override ours.
        start_s: seconds within which the server must answer.

    Raises:
        EnvironmentNotReady: vLLM is not installed.
        ConfigError: the folder holds no model.
    """

    def __init__(self, folder: Path, log: Path, arguments: Sequence[str] = (), start_s: float = 900.0) -> None:
        refuse_no_model(folder)
        self.model, self.key = folder.resolve().name, secrets.token_hex(16)
        self._folder, self._log, self._arguments, self._start_s = folder, log, tuple(arguments), start_s
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline = -1
        self.base_url = ""
        """Known once the server runs."""

    def __enter__(self) -> VllmServer:
        try:
            self._start()
            self._wait()
        except BaseException:  # an interrupt too must not leave a server behind
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def ended(self) -> str | None:
        """Return why the server has ended, in a sentence; None while it runs."""
        if self._process is None or not self._has_ended():
            return None
        return f"vLLM's server of {self._folder} has ended; its last lines in {self._log}: {self._last_lines()}"

    def close(self) -> None:
        """Stop the server and all processes that it has started."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        end = time.monotonic() + _GRACE_S
        while not _is_zombie(process.pid) and time.monotonic() < end:
            time.sleep(0.05)
        with suppress(ProcessLookupError):  # before waiting for it: until then no other process can get its id
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(self._lifeline)

    def _start(self) -> None:
        port = _free_port()
        # Never written to: end of file tells the server that this process has ended.
        theirs, self._lifeline = os.pipe()
        command = [sys.executable, "-m", "verl_kernel.bench.models.vllm_process", str(theirs), str(self._folder)]
        command += [*serve_arguments(model=self.model, port=port), *self._arguments]
        defaults = {**_QUIET, **(ENVIRONMENT if is_cpu_build() else {})}
        self._log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    command,
                    pass_fds=[theirs],
                    env={**defaults, **os.environ, "VLLM_API_KEY": self.key},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        finally:
            os.close(theirs)
        self.base_url = f"http://127.0.0.1:{port}/v1"

    def _wait(self) -> None:
        import httpx

        end, headers = time.monotonic() + self._start_s, {"Authorization": f"Bearer {self.key}"}
        with httpx.Client(trust_env=False, timeout=5.0, headers=headers) as client:
            while time.monotonic() < end:
                if (sentence := self.ended) is not None:
                    raise EndpointError(sentence)
                with suppress(httpx.HTTPError):
                    if client.get(f"{self.base_url}/models").status_code == httpx.codes.OK:
                        return
                time.sleep(_PAUSE_S)
        raise EndpointError(
            f"vLLM's server of {self._folder} did not answer within {self._start_s:g} s: see {self._log}"
        )

    def _has_ended(self) -> bool:
        return self._process is not None and _is_zombie(self._process.pid)

    def _last_lines(self) -> str:
        with suppress(OSError), self._log.open(encoding="utf-8", errors="replace") as log:
            lines = deque((line.strip() for line in log if "Error" in line or "error" in line), maxlen=2)
            return " / ".join(lines)[-600:] or "(none names an error)"
        return "(not readable)"


def serve_arguments(*, model: str, port: int) -> list[str]:
    """Return our options of `vllm serve`, for the vLLM that is installed."""
    listening = ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", model]
    return [*listening, *(_ON_A_CPU if is_cpu_build() else ())]


def refuse_no_model(folder: Path) -> None:
    """Check everything that can be checked without a start.

    Raises:
        ConfigError: the folder holds no model.
        EnvironmentNotReady: vLLM is not installed.
    """
    if not folder.is_dir():
        raise ConfigError(f"--vllm is {folder}, which is no folder: name the folder of a Hugging Face model")
    if not (folder / "config.json").is_file():
        raise ConfigError(f"--vllm is {folder}, which holds no config.json: name the folder of a Hugging Face model")
    if find_spec("vllm") is None:
        raise EnvironmentNotReady("--vllm needs vLLM: install it, or serve the model elsewhere and give --base-url")


def is_cpu_build() -> bool:
    """Whether the installed vLLM runs on a CPU only."""
    try:
        return "cpu" in version("vllm")
    except PackageNotFoundError:
        return True  # its CPU build, whose distribution has another name


def _is_zombie(pid: int) -> bool:
    """Whether a child process has ended but was not yet waited for."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
