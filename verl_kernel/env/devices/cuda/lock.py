# SPDX-License-Identifier: Apache-2.0
"""Locks a device that many judges use: a clock needs it exclusively, all other work may share it.

The locks are advisory locks on two files named after the device, in a folder common to all judges of a machine. So
they hold between processes, users and containers that share it, and end with the process that holds them. A process
takes the gate before the device; a clock keeps the gate while it waits, so a stream of sharers cannot starve it.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.devices.cuda.driver import compute_processes, count_foreign
from verl_kernel.env.options import GymOptions
from verl_kernel.errors import EnvironmentNotReady, InfraError

FOLDER = "/tmp"
"""Folder of the locks; not `tempfile.gettempdir()`, since every judge has a different TMPDIR."""
_POLL_S = 0.005


class DeviceLock:
    """One process's lock on a device; not for use by several threads.

    Args:
        key: name of the device on this machine (its UUID).
        timeout_s: longest total of all waits since `waited_s` was last set to 0.
        folder: folder of the lock files.

    Raises:
        InfraError: the lock was not acquired in time, or the files cannot be opened.
    """

    def __init__(self, key: str, timeout_s: float = 300.0, folder: str = FOLDER) -> None:
        name = "".join(letter if letter.isalnum() else "_" for letter in key)
        self._base = Path(folder) / f"verl_kernel_{name}"
        self._timeout_s = timeout_s
        self._device, self._is_alone = -1, False
        self.waited_s = 0.0
        """Seconds spent waiting."""

    def probe(self) -> None:
        """Open the lock files, which creates them."""
        for part in ("gate", "device"):
            os.close(_open(self._path(part)))

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Share the device with other processes; does nothing if this process has it already."""
        if self._device >= 0:
            yield
            return
        with self._gate():
            self._device = self._take("device", fcntl.LOCK_SH)
        try:
            yield
        finally:
            self._give_back()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Take the device exclusively.

        A share that this process holds is released before the wait, since two processes that wait with a share each
        would deadlock. It is taken again at the end, without a wait, because no other process passes the gate by then.
        """
        if self._is_alone:
            yield
            return
        had_share = self._device >= 0
        self._give_back()  # two processes that wait with a share each would deadlock
        with self._gate():
            self._device, self._is_alone = self._take("device", fcntl.LOCK_EX), True
            try:
                yield
            finally:
                self._is_alone = False
                if had_share:
                    fcntl.flock(self._device, fcntl.LOCK_SH)  # no wait: the gate is still closed to others
                else:
                    self._give_back()

    @contextmanager
    def _gate(self) -> Iterator[None]:
        fd = self._take("gate", fcntl.LOCK_EX)
        try:
            yield
        finally:
            os.close(fd)

    def _give_back(self) -> None:
        if self._device >= 0:
            os.close(self._device)
            self._device = -1

    def _take(self, part: str, kind: int) -> int:
        path, start = self._path(part), time.monotonic()
        try:
            while (fd := _locked(path, kind)) is None:
                if self.waited_s + time.monotonic() - start >= self._timeout_s:
                    raise InfraError(
                        f"a device stayed locked for {self._timeout_s:g} s ({path}): give each judge a device of its "
                        "own or raise its time limits"
                    )
                time.sleep(_POLL_S)
        finally:
            self.waited_s += time.monotonic() - start
        return fd

    def _path(self, part: str) -> str:
        return f"{self._base}.{part}.lock"


def _locked(path: str, kind: int) -> int | None:
    """Return a descriptor that holds the lock, or None while another process has it."""
    fd = _open(path)
    with suppress(BlockingIOError):
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
        if _is_there(fd, path):
            with suppress(OSError):
                os.utime(fd)  # otherwise a cleaner of old temporary files would remove it one day
            return fd
    os.close(fd)
    return None


def _is_there(fd: int, path: str) -> bool:
    """Whether the file has not been removed meanwhile; other processes would not see a lock on a removed file."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(fd), Path(path).lstat())
    return False


def _open(path: str) -> int:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with suppress(FileNotFoundError):
            return os.open(path, flags)
        _make(path)
        return os.open(path, flags)
    except OSError as exc:
        raise InfraError(f"the lock of a device cannot be opened: {exc}") from exc


def _make(path: str) -> None:
    """Create an empty file that every user may lock, regardless of this user's umask."""
    fd, new = tempfile.mkstemp(prefix="verl_kernel_", dir=Path(path).parent)
    try:
        os.fchmod(fd, 0o666)
        with suppress(FileExistsError):
            os.link(new, path)
    finally:
        os.close(fd)
        Path(new).unlink()


Census = Callable[[], Collection[int] | None]
"""Returns the ids of the processes on the GPU; None if unknown."""


class Sharing:
    """One judge's use of a shared GPU.

    Args:
        uuid: UUID of the GPU.
        options: options of the gym.
        census: returns the processes on the GPU; asks the driver by default.

    Raises:
        EnvironmentNotReady: `lock_dir` cannot hold a lock, or the processes for `require_idle_gpu` are unknown here.
    """

    def __init__(self, uuid: str, options: GymOptions, census: Census | None = None) -> None:
        self._lock = DeviceLock(uuid, options.patience_s, options.lock_dir)
        self._census = census or (lambda: compute_processes(uuid))
        self._wants_idle = options.require_idle_gpu
        self.foreign_processes: int | None = None
        """Largest number of them seen during the last exclusive use; None if unknown."""
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
        """Begin a new evaluation: set its waiting time to 0."""
        self._lock.waited_s = 0.0

    @property
    def waited_s(self) -> float:
        """Seconds for which this evaluation has waited for others."""
        return self._lock.waited_s

    def shared(self) -> AbstractContextManager[None]:
        """Share the GPU with other judges while none of them measures times."""
        return self._lock.shared()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Use the GPU while no other judge does, and count foreign processes before and after.

        Raises:
            InfraError: there was one and `require_idle_gpu` is on, or the lock was not acquired.
        """
        with self._lock.exclusive():
            before = self.foreign_processes = self._look()
            yield
            after = self._look()
            self.foreign_processes = None if before is None or after is None else max(before, after)

    def _look(self) -> int | None:
        foreign = count_foreign(self._census())
        if self._wants_idle and foreign != 0:
            who = "processes that may be judges" if foreign is None else f"{foreign} foreign processes"
            raise InfraError(
                f"the GPU was not idle: {who} used it while a candidate was timed; end them, or set "
                "kernelgym.require_idle_gpu to false"
            )
        return foreign


class SharedDevice(DeviceBackend):
    """A device that several judges share; the subclass's `adopt` sets `sharing`."""

    sharing: Sharing

    def begin(self) -> None:
        """Begin a new evaluation."""
        self.sharing.begin()

    def shared(self) -> AbstractContextManager[Any]:
        """Share the GPU."""
        return self.sharing.shared()

    @property
    def waited_s(self) -> float:
        """Seconds for which this evaluation has waited for other judges."""
        return self.sharing.waited_s

    def seen(self) -> dict[str, Any]:
        """Return the number of foreign processes on the GPU while the clock ran; None if unknown."""
        return {"foreign_processes": self.sharing.foreign_processes}
