# SPDX-License-Identifier: Apache-2.0
"""Services for tests: in this process, with any options, and as a user starts them."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import uvicorn

from tests.env.waiting import until as wait_for
from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool.stats import JudgeStats, PoolCounters
from verl_kernel.env.result import EvalResult, EvalStatus
from verl_kernel.errors import TaskError
from verl_kernel.service import evaluation_queue
from verl_kernel.service.app import Service
from verl_kernel.service.keys import Keys, read_keys
from verl_kernel.service.options import ServiceOptions
from verl_kernel.service.record import ServiceRecord
from verl_kernel.service.server import server_config

KEYS = {"operator": "key-of-the-operator", "one": "key-of-the-namespace-one", "two": "key-of-the-namespace-two"}
GYM = GymOptions(device="cpu")
QUICK = ("--device=cpu", "--static-check=off", "--trials=2")


class Pool:
    """Judges nothing; `held` holds all answers back."""

    def __init__(self):
        self.open, self.asked, self.cancelled, self.tally = threading.Event(), [], 0, PoolCounters()
        self.open.set()
        self.status = EvalStatus.OK

    async def evaluate(self, task, source, *, kernel="", validate=False, step=None):
        self.asked.append((task.namespace, task.task_id, source, kernel, validate, step))
        try:
            while not self.open.is_set():
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if source == "unfit":
            raise TaskError("reference t cannot serve as a task: no data")
        if source == "fault":
            raise ZeroDivisionError("a secret of the service")
        return EvalResult(task_id=task.task_id, kernel=kernel, status=self.status, attempts=1)

    def stats(self):
        return self.tally.stats((JudgeStats(number=0, state="free"),), 0, 0, None)


@contextmanager
def serving(
    pool: evaluation_queue.JudgePool, folder: Path, gym: GymOptions, keys: Keys | None = None, **given: object
) -> Iterator[str]:
    options, record = ServiceOptions(state=str(folder), **given), ServiceRecord(folder)
    service = Service(pool, record, keys or Keys({}), options, gym)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(server_config(service))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_for(lambda: server.started)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            service.queue.stop_waiting()
            server.should_exit = True
            thread.join()
            record.close()


def keys_file(folder: Path) -> Path:
    path = folder / "keys"
    path.touch(mode=0o600)
    path.write_text("".join(f"{name} {key}\n" for name, key in KEYS.items()))
    return path


def some_keys(folder: Path) -> Keys:
    return read_keys(str(keys_file(folder)))


def client(address: str, name: str | None = None) -> httpx.Client:
    headers = {} if name is None else {"Authorization": f"Bearer {KEYS[name]}"}
    return httpx.Client(base_url=address, headers=headers, timeout=300, trust_env=False)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def is_listening(port: int) -> bool:
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


class Started:
    """`verl-kernel serve` as a process."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.log = folder / f"serve-{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", "verl_kernel", "serve", "--port=0", f"--state={folder / 'state'}"]
        usual = () if any(word.startswith("--options") for word in words) else QUICK
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                [*command, *usual, *words],
                stdout=out, stderr=out, env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True,
            )  # fmt: skip
        wait_for(lambda: "serving on" in self.said or self.process.poll() is not None)
        assert self.process.poll() is None, self.said
        self.address = self.said.split("serving on ")[1].split()[0]

    @property
    def said(self) -> str:
        return self.log.read_text()

    def __enter__(self) -> "Started":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
