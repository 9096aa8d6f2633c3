# SPDX-License-Identifier: Apache-2.0
"""One fork that enters the jail and goes a runner's way to a timed and profiled kernel, saying where it stopped."""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu.relief import Relief
from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.sandbox import jail, landlock

LIMIT_S = 20.0
_MEMORY_MB = 4096


@dataclass(frozen=True)
class Outcome:
    """How far an attempt came."""

    isolation: tuple[str, ...]
    reached: int
    """Number of steps that succeeded."""
    steps: tuple[str, ...]
    """Those that were to be taken."""
    words: str
    """What stopped it, in the driver's or the kernel's own words; empty where nothing did."""
    seconds: dict[str, float]

    @property
    def works(self) -> bool:
        """Whether every step succeeded."""
        return self.reached == len(self.steps)

    def columns(self) -> dict[str, object]:
        """For a table."""
        stopped_at = "" if self.works else self.steps[self.reached]
        return {"works": self.works, "stopped at": stopped_at, "words": self.words, **self.seconds}


def attempt(device: DeviceBackend, relief: Relief, last: str = "profiler") -> Outcome:
    """Fork, enter the jail with `relief`, take the steps up to `last`."""
    steps = tuple(STEPS)[: tuple(STEPS).index(last) + 1]
    scratch = tempfile.mkdtemp()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            _child(device, relief, steps, scratch, writing)
        finally:  # this copy of the zygote must not return
            os._exit(0)
    os.close(writing)
    try:
        return _outcome(steps, _lines(reading, LIMIT_S), _end(pid))
    finally:
        os.close(reading)
        shutil.rmtree(scratch, ignore_errors=True)


def _child(device: DeviceBackend, relief: Relief, steps: Sequence[str], scratch: str, pipe: int) -> None:
    def say(**line: Any) -> None:
        os.write(pipe, (json.dumps(line) + "\n").encode())

    try:
        relief.apply()
        enter_jail(device, scratch, say)
        for name in steps:
            start = time.perf_counter()
            STEPS[name](device)
            say(step=name, seconds=round(time.perf_counter() - start, 2))
    except BaseException as exc:  # noqa: BLE001  a refusal may take any form; its words are what this is about
        say(words=f"{type(exc).__name__}: {exc}")


def enter_jail(device: DeviceBackend, scratch: str, say: Callable[..., None]) -> None:
    """As `zygote._become_runner` does."""
    landlock.settle(device.zygote_env(), scratch)
    say(isolation=jail.enter(jail.Limits(scratch, _MEMORY_MB, device.isolation())))


def _driver(device: DeviceBackend) -> None:
    if device.name != "cuda":
        return
    driver = ctypes.CDLL("libcuda.so.1")
    if (code := driver.cuInit(0)) != 0:
        words = ctypes.c_char_p()
        driver.cuGetErrorString(code, ctypes.byref(words))
        raise RuntimeError(f"cuInit returns {code}: {(words.value or b'').decode()}")


def _context(device: DeviceBackend) -> None:
    device.enter(_MEMORY_MB)


def _tensor(device: DeviceBackend) -> None:
    import torch

    assert float((device.to_device(torch.ones(1 << 10)) + 1).sum()) == 2 << 10


def _kernel(device: DeviceBackend) -> None:
    """Compiled anew: the cache lies in the private folder."""
    import torch

    from verl_kernel.env.devices.warmup import WarmUpProgram

    with torch.no_grad():
        device.place(WarmUpProgram())(device.to_device(torch.randn(16)))
        device.synchronize()


def _profiler(device: DeviceBackend) -> None:
    import torch

    from verl_kernel.env.clocks.cuda import timed_calls

    x = device.to_device(torch.ones(1 << 10))
    for _ in range(2):  # the first also starts it
        with timed_calls.device_kernels() as kernels:
            x + 1
            device.synchronize()
    if not kernels:
        raise RuntimeError("torch's profiler saw no kernel on the device")


STEPS: dict[str, Callable[[DeviceBackend], None]] = {
    "driver": _driver, "context": _context, "tensor": _tensor, "kernel": _kernel, "profiler": _profiler,
}  # fmt: skip
"""In order; each needs the ones before."""


def _lines(pipe: int, limit_s: float) -> list[dict[str, Any]]:
    """What the child said until it ended or the time was over."""
    text, deadline = b"", time.monotonic() + limit_s
    while select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
        if not (data := os.read(pipe, 1 << 16)):
            break
        text += data
    else:
        text += json.dumps({"words": f"not done after {limit_s:g} s"}).encode()
    return [json.loads(line) for line in text.splitlines()]


def _end(pid: int) -> str:
    """Collect it; the signal that ended it, if one did."""
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline and not (done := os.waitpid(pid, os.WNOHANG))[0]:
        time.sleep(0.01)
    if not done[0]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return "" if _is_collected(pid) else "and could not be killed"
    return f"ended by signal {os.WTERMSIG(done[1])}" if os.WIFSIGNALED(done[1]) else ""


def _is_collected(pid: int) -> bool:
    deadline = time.monotonic() + 10.0
    while time.monotonic() < deadline:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return True
        time.sleep(0.05)
    return False


def _outcome(steps: tuple[str, ...], lines: list[dict[str, Any]], end: str) -> Outcome:
    isolation = next((tuple(line["isolation"]) for line in lines if "isolation" in line), ())
    seconds = {line["step"]: line["seconds"] for line in lines if "step" in line}
    words = " ".join([*(line["words"] for line in lines if "words" in line), end]).strip()
    return Outcome(isolation, len(seconds), steps, words, seconds)
