# SPDX-License-Identifier: Apache-2.0
"""Pools for tests, and a look at their processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.env.pretend.pretend_gpu import backend
from verl_kernel.env.judge import judge as judges
from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool.cluster.gym import KernelGym

PRETEND = str(Path(__file__).with_name("pretend"))
"""In PYTHONPATH, its `sitecustomize` gives judges' processes and zygotes a pretended device."""


_LOCKED = """
import sys
if any(word in ("verl_kernel.env.pool.judge_worker", "verl_kernel.env.runner.zygote") for word in sys.orig_argv):
    from verl_kernel.env import backends
    real = backends.resolve_backend
    def resolve_backend(name, probe=True):
        if name != "cuda":
            return real(name, probe)
        from locked_gpu import LockedGpu, backend
        LockedGpu.name, LockedGpu.uuid, LockedGpu.journal = "cuda", {uuid!r}, {journal!r}
        return backend()
    backends.resolve_backend = resolve_backend
"""


def pretend(patch: pytest.MonkeyPatch, folder: Path | str = "", site: str = "") -> None:
    """Let what starts from here find the pretended devices, and first a `sitecustomize` of this text in the folder."""
    if site:
        Path(folder, "sitecustomize.py").write_text(site)
    paths = filter(None, [str(folder), PRETEND, os.environ.get("PYTHONPATH", "")])
    patch.setenv("PYTHONPATH", os.pathsep.join(paths))


def pretend_cuda(patch: pytest.MonkeyPatch, folder: Path) -> tuple[str, Path]:
    """Make judges' device `cuda` a pretended GPU that they share: its name, and the file in which they note its use."""
    uuid, journal = f"GPU-pretended-{os.getpid()}", folder / "journal"
    pretend(patch, folder, _LOCKED.format(uuid=uuid, journal=str(journal)))
    return uuid, journal


@contextlib.contextmanager
def ray_gym(options: GymOptions, name: str, seed: int | None = None) -> Iterator[KernelGym]:
    """A pool on a Ray cluster of its own, ready."""
    import ray

    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, ignore_reinit_error=True)
    try:
        with KernelGym.connect(options, name=name, seed=seed) as gym:
            gym.ready()
            yield gym
    finally:
        ray.shutdown()


@contextlib.contextmanager
def pretended_judge(options: GymOptions) -> Iterator[judges.Judge]:
    """A judge whose clock times both sides through real processes, on a pretended device."""
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch)
        patch.setattr(judges, "resolve_backend", lambda name: backend())
        with judges.Judge(options, seed=3) as judge:
            yield judge


def family(pid: int | None = None) -> list[psutil.Process]:
    return psutil.Process(pid or os.getpid()).children(recursive=True)


def named(word: str, processes: list[psutil.Process] | None = None) -> list[psutil.Process]:
    """Descendants whose command line holds `word` (`judge_worker`, `ray::Router`)."""
    found = []
    for process in processes if processes is not None else family():
        with contextlib.suppress(psutil.Error):
            if word in " ".join(process.cmdline()):
                found.append(process)
    return found


def below(processes: list[psutil.Process], levels: int) -> list[psutil.Process]:
    """Descendants so many generations further down: judge, zygote, runner below a judge's owner."""
    for _ in range(levels):
        children = []
        for process in processes:
            with contextlib.suppress(psutil.Error):
                children += process.children()
        processes = children
    return processes


def survivors(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that have not ended after a while."""
    return psutil.wait_procs(processes, timeout=300)[1]
