# SPDX-License-Identifier: Apache-2.0
"""One device, many judges: a clock needs it alone, everything else may share it.

Advisory locks on two files named after the device, in a folder that is the same for all judges of a machine, so they
hold between processes, users and containers that share it, and end with the process that holds them. Whoever wants the
device passes the gate first; a clock keeps the gate closed while it waits, so a stream of sharers cannot starve it.
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
"""Not `tempfile.gettempdir()`: every judge has a TMPDIR of its own."""
_POLL_S = 0.005


class DeviceLock:
    """One process's hold on a device; not for use by several threads.

    Args:
        key: what names the device on this machine (its UUID).
        timeout_s: longest wait, all waits since `waited_s` was last set to 0 together.
        folder: where the files lie.

    Raises:
        InfraError: not had in time, or the files cannot be opened.
    """

    def __init__(self, key: str, timeout_s: float = 300.0, folder: str = FOLDER) -> None:
        name = "".join(letter if letter.isalnum() else "_" for letter in key)
        self._base = Path(folder) / f"verl_kernel_{name}"
        self._timeout_s = timeout_s
        self._device, self._is_alone = -1, False
        self.waited_s = 0.0
        """Seconds spent on waiting."""

    def probe(self) -> None:
        """Open its files, which makes them."""
        for part in ("gate", "device"):
            os.close(_open(self._path(part)))

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Use the device beside others that share it; nothing changes where this process has it already."""
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
        """Have the device alone.

        A share of this process is given back before it waits, since two that waited with a share each would wait for
        each other, and is had again at the end: at once, because nobody else gets past the gate until then.
        """
        if self._is_alone:
            yield
            return
        had_share = self._device >= 0
        self._give_back()
        with self._gate():
            self._device, self._is_alone = self._take("device", fcntl.LOCK_EX), True
            try:
                yield
            finally:
                self._is_alone = False
                if had_share:
                    fcntl.flock(self._device, fcntl.LOCK_SH)
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
    """A descriptor that holds the lock, or None while another process has it."""
    fd = _open(path)
    with suppress(BlockingIOError):
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
        if _is_there(fd, path):
            with suppress(OSError):
                os.utime(fd)  # or a cleaner of old temporary files removes it one day
            return fd
    os.close(fd)
    return None


def _is_there(fd: int, path: str) -> bool:
    """Whether the file has not been removed meanwhile: a lock on one that others do not find locks nothing."""
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
    """Put an empty file there that every user may lock, whatever this one's umask is."""
    fd, new = tempfile.mkstemp(prefix="verl_kernel_", dir=Path(path).parent)
    try:
        os.fchmod(fd, 0o666)
        with suppress(FileExistsError):
            os.link(new, path)
    finally:
        os.close(fd)
        Path(new).unlink()


# One judge's turns on a GPU that others use too: its lock, how long it waited, which foreign processes it saw.


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
