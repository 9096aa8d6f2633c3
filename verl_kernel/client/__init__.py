# SPDX-License-Identifier: Apache-2.0
"""The gym of a service (`verl-kernel serve`) behind the same interface as a pool of one's own.

from verl_kernel.client import RemoteGym

with RemoteGym("http://127.0.0.1:8008") as gym:
    result = gym.evaluate_many([(task, source, "kernel.py")])[0]
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from verl_kernel.client.gym import Gym
from verl_kernel.client.remote_gym import RemoteGym

if TYPE_CHECKING:
    from verl_kernel.env import GymOptions, LocalPool

__all__ = ["Gym", "RemoteGym", "connect", "on_device", "open_gym"]


def connect(options: GymOptions) -> Gym:
    """Return a handle on the judges that a configuration asks for: those of a service, or of this Ray cluster.

    Raises:
        ConfigError: the service judges by other options.
        EnvironmentNotReady: no service answers at `kernelgym.address`, or it does not know the key.
    """
    if options.address is not None:
        return RemoteGym.connect(options)
    from verl_kernel.env import KernelGym

    return KernelGym.connect(options)


@contextmanager
def open_gym(options: GymOptions, seed: int | None) -> Iterator[LocalPool | RemoteGym]:
    """Yield the judges that a command asks for: those of a service, which draws by its own seed, or judges of its own.

    Raises:
        ConfigError: the service judges by other options.
        EnvironmentNotReady: no service answers at `kernelgym.address`, or no judge can start here.
    """
    if options.address is not None:
        with RemoteGym.connect(options) as gym:
            yield gym
        return
    from verl_kernel.env import LocalPool

    with LocalPool(options, seed) as pool:
        yield pool


def on_device(options: GymOptions) -> GymOptions:
    """Return the options with the device that `auto` means: that of the service, or that of this machine.

    Raises:
        ConfigError: the service judges by other options.
        EnvironmentNotReady: there is no such device, or no such service.
    """
    if options.address is not None:
        with RemoteGym.connect(options) as gym:
            return replace(options, device=gym.options()["device"])
    from verl_kernel.env import resolve_device

    return replace(options, device="cuda" if resolve_device(options.device).name == "cuda" else "cpu")
