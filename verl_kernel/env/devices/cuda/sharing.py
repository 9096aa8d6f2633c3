# SPDX-License-Identifier: Apache-2.0
"""One judge's turns on a GPU that others use too: its lock, how long it waited, which foreign processes it saw."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.devices.cuda.facts import compute_processes
from verl_kernel.env.devices.cuda.foreign_processes import count_foreign
from verl_kernel.env.devices.cuda.lock import DeviceLock
from verl_kernel.env.options import GymOptions
from verl_kernel.errors import EnvironmentNotReady, InfraError

Census = Callable[[], Collection[int] | None]
"""Asks the driver for the processes on the GPU."""


class Sharing:
    """The turns of one judge.

    Args:
        uuid: of the GPU.
        options: of the gym.
        census: who is on the GPU; the driver's list by default.

    Raises:
        EnvironmentNotReady: `lock_dir` cannot hold a lock, or `require_idle_gpu` asks for what nobody can tell here.
    """

    def __init__(self, uuid: str, options: GymOptions, census: Census | None = None) -> None:
        self._lock = DeviceLock(uuid, options.patience_s, options.lock_dir)
        self._census = census or (lambda: compute_processes(uuid))
        self._wants_idle = options.require_idle_gpu
        self.foreign_processes: int | None = None
        """Most of them that were seen at the last turn alone; None is unknown."""
        try:
            self._lock.probe()
        except InfraError as exc:
            raise EnvironmentNotReady(
                f"kernelgym.lock_dir is {options.lock_dir!r}: {exc}; name a folder that every judge of this machine "
                "can write"
            ) from None
        if self._wants_idle and count_foreign(self._census()) is None:
            raise EnvironmentNotReady(
                "kernelgym.require_idle_gpu is true, and NVML does not tell which processes use the GPU: give a "
                "container the machine's process ids (--pid=host), or set it to false"
            )

    def begin(self) -> None:
        """Another evaluation begins: it has not waited yet."""
        self._lock.waited_s = 0.0

    @property
    def waited_s(self) -> float:
        """Seconds that this evaluation has waited for others."""
        return self._lock.waited_s

    def shared(self) -> AbstractContextManager[None]:
        """Use the GPU beside other judges, while none of them takes time."""
        return self._lock.shared()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Use the GPU while no other judge does, and look who else is there, before and after.

        Raises:
            InfraError: somebody was and `require_idle_gpu` is on, or the GPU could not be had.
        """
        with self._lock.exclusive():
            before = self.foreign_processes = self._look()
            yield
            after = self._look()
            self.foreign_processes = None if before is None or after is None else max(before, after)

    def _look(self) -> int | None:
        found = count_foreign(self._census())
        if self._wants_idle and found != 0:
            who = "processes that nobody can tell from judges" if found is None else f"{found} foreign processes"
            raise InfraError(
                f"the GPU was not idle: {who} used it while a candidate was timed; end them, or set "
                "kernelgym.require_idle_gpu to false"
            )
        return found


class SharedDevice(DeviceBackend):
    """A device on which several judges take turns; whoever adopts it sets `sharing`."""

    sharing: Sharing

    def begin(self) -> None:
        """Nothing has been waited for yet."""
        self.sharing.begin()

    def shared(self) -> AbstractContextManager[Any]:
        """Share the GPU."""
        return self.sharing.shared()

    @property
    def waited_s(self) -> float:
        """Seconds that this evaluation has waited for other judges."""
        return self.sharing.waited_s

    def seen(self) -> dict[str, Any]:
        """Foreign processes on the GPU while the clock ran; None is unknown."""
        return {"foreign_processes": self.sharing.foreign_processes}
