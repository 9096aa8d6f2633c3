# SPDX-License-Identifier: Apache-2.0
"""Runs a service in this process until it is told to end."""

from __future__ import annotations

import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import uvicorn

from verl_kernel.client import on_device
from verl_kernel.env.options import GymOptions
from verl_kernel.errors import ConfigError, EnvironmentNotReady
from verl_kernel.service.app import Service
from verl_kernel.service.evaluation_queue import JudgePool
from verl_kernel.service.keys import read_keys
from verl_kernel.service.limits import limited_heads
from verl_kernel.service.options import ServiceOptions
from verl_kernel.service.record import ServiceRecord

_MOST_CONNECTIONS = 2048
"""Largest number of connections that are open, and of those that wait to be accepted."""
_ANSWERS_S = 5
"""Seconds in which clients may take the last answers."""


class EndingServer(uvicorn.Server):
    """A server that, told to end, accepts no evaluation, and answers until those under way have ended.

    Until then new ones are refused with `Retry-After`, and results can be fetched. A second signal ends at once.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._until: float | None = None
        """Time of the monotonic clock until which evaluations may go on, once it is told to end."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end; at a second signal, end."""
        self._service.queue.begin_to_end()
        if self._until is None:
            self._until = time.monotonic() + self._service.options.grace_s
        else:
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Tell whether to end now."""
        is_over = await super().on_tick(counter)
        if self._until is not None:
            is_over |= not self._service.queue.waiting or time.monotonic() >= self._until
        if is_over:
            self._service.grace_s = 0.0
            self._service.queue.stop_waiting()
        return is_over


def serve(options: ServiceOptions, gym: GymOptions, seed: int | None, ray_address: str | None) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        options: of the service.
        gym: how to judge, and with how many judges.
        seed: makes verdicts reproducible.
        ray_address: a Ray cluster whose pool judges; None starts judges on this machine.

    Raises:
        ConfigError: the address is taken, or a file cannot be used.
        EnvironmentNotReady: no judge can start.
    """
    keys = read_keys(options.keys)
    if ray_address is None:
        gym = on_device(gym)  # clients are told which device judges
    with _listening(options) as listener:
        record = ServiceRecord(Path(options.state))
        try:
            with _pool(gym, seed, ray_address) as pool:
                service = Service(pool, record, keys, options, gym)
                config = server_config(service)
                host, port = listener.getsockname()[:2]
                print(f"serving on http://{f'[{host}]' if ':' in host else host}:{port}", file=sys.stderr, flush=True)
                with _own_signals():
                    EndingServer(config, service).run(sockets=[listener])
        finally:
            record.close()


def server_config(service: Service) -> uvicorn.Config:
    """Return how uvicorn serves: its limits are those of the service."""
    return uvicorn.Config(
        service.app(),
        http=limited_heads(service.options.request_s),
        log_level="warning",
        lifespan="on",
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=_ANSWERS_S,
    )


@contextmanager
def _own_signals() -> Iterator[None]:
    """Let nothing but the server act on a signal: it raises each one again at its end, before the judges are closed."""
    earlier = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


@contextmanager
def _listening(options: ServiceOptions) -> Iterator[socket.socket]:
    """Yield a socket that listens.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((options.host, options.port))
            listener.listen(_MOST_CONNECTIONS)
        except OSError as exc:
            raise ConfigError(
                f"serve.host is {options.host!r} and serve.port is {options.port}, where nothing can listen "
                f"({exc.strerror or exc}): name another port, or 0 for a free one"
            ) from exc
        yield listener


@contextmanager
def _pool(gym: GymOptions, seed: int | None, ray_address: str | None) -> Iterator[JudgePool]:
    if ray_address is None:
        from verl_kernel.env.pool.local import LocalPool

        with LocalPool(gym, seed) as pool:
            yield pool
        return
    try:
        import ray
    except ImportError as exc:
        raise EnvironmentNotReady("--ray-address needs Ray: pip install ray") from exc
    from verl_kernel.env.pool.cluster.gym import KernelGym

    try:
        ray.init(address=ray_address, log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as exc:
        raise EnvironmentNotReady(f"no Ray cluster answers at {ray_address}: {exc}") from exc
    try:
        gym_handle = KernelGym.connect(gym, seed=seed)
        gym_handle.ready()
        yield gym_handle
    finally:
        ray.shutdown()
