# SPDX-License-Identifier: Apache-2.0
"""Finds the pools of a running Ray cluster from outside their jobs."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from verl_kernel.errors import ConfigError, EnvironmentNotReady, VerlKernelError

ADDRESS = "Address of the Ray cluster; auto finds the one of this machine."
NAME = "Name of the pool."
_ADDRESS = re.compile(r"auto|local|(ray://)?[^\s/]+:\d{1,5}")
_ANSWER_S, _KNOCK_S = 20.0, 5.0
"""Seconds for a pool's answer, and for a connection to the cluster's address."""


@contextmanager
def running_pools(address: str, name: str) -> Iterator[list[Any]]:
    """Yield the routers of the pools called `name`, one for each job that has such a pool.

    Raises:
        EnvironmentNotReady: no cluster or no such pool; the sentence says which.
    """
    try:
        _knock(address)
        import ray  # takes seconds, so the address is checked before

        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError, OSError) as exc:
        raise EnvironmentNotReady(
            f"no Ray cluster answers at {address}: start a run first, or name its cluster with --address "
            f"({_first_line(exc)})"
        ) from exc
    try:
        named = [actor for actor in ray.util.list_named_actors(all_namespaces=True) if actor["name"] == name]
        if not named:
            raise EnvironmentNotReady(
                f"the cluster has no pool called {name}: a run makes one when it starts; --name takes another name"
            )
        yield [_router(actor) for actor in named]
    finally:
        ray.shutdown()


def ask(router: Any, method: str, *args: Any) -> Any:
    """Return the answer of a router's method.

    Raises:
        EnvironmentNotReady: the router does not answer.
        VerlKernelError: the router refuses.
    """
    import ray

    from verl_kernel.env import CONTROL

    try:
        answer = getattr(router, method).options(concurrency_group=CONTROL).remote(*args)
        return ray.get(answer, timeout=_ANSWER_S)
    except ray.exceptions.RayTaskError as exc:
        if isinstance(exc.cause, VerlKernelError):
            raise exc.cause from None
        raise _silent(exc) from exc
    except (ray.exceptions.RayError, AttributeError, ValueError) as exc:
        raise _silent(exc) from exc


def _router(actor: dict[str, str]) -> Any:
    import ray

    try:
        return ray.get_actor(actor["name"], namespace=actor["namespace"])
    except ValueError as exc:
        raise _silent(exc) from exc


def _silent(exc: Exception) -> EnvironmentNotReady:
    return EnvironmentNotReady(
        f"an actor of the pool's name does not answer as a pool does ({_first_line(exc)}): look at the run's log"
    )


def _knock(address: str) -> None:
    """Raise OSError if nothing listens at an address: Ray would retry for two minutes and then end this process.

    Raises:
        ConfigError: it is no address.
    """
    if not _ADDRESS.fullmatch(address):
        raise ConfigError(f"--address is {address!r}; it must be HOST:PORT, or auto for the cluster of this machine")
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=_KNOCK_S).close()


def _first_line(exc: Exception) -> str:
    return str(exc).strip().partition("\n")[0][:200]
