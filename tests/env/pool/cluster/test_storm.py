# SPDX-License-Identifier: Apache-2.0
"""300 evaluations by two judges of a Ray pool while their processes are killed at random, 44 times.

The mix: 32 runners, 6 zygotes, 4 judge processes, 2 judge actors, in an order drawn from a seed; kill number k comes
after 300 k / 46 results, so that the storm lasts as long as the work. A runner's SIGKILL may be its candidate's own
doing, so it is a crash and no failure of ours.
"""

import asyncio
import contextlib
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.env.gyms import below, family, named, ray_gym
from tests.env.programs import HONEST, REFERENCE, candidate
from tests.env.waiting import until
from verl_kernel.env import EvalStatus, GymOptions, Task

OPTIONS = GymOptions(
    device="cpu", static_check="off", correctness_trials=2, run_timeout_s=20, num_judges=2, cpus_per_judge=0.5,
    quarantine_s=0.5,
)  # fmt: skip
TASK = Task(REFERENCE, task_id="storm")
EVALUATIONS = 300
PLAN = ["runner"] * 32 + ["zygote"] * 6 + ["judge"] * 4 + ["actor"] * 2
CANDIDATES = {
    EvalStatus.OK: HONEST,
    EvalStatus.INCORRECT: candidate("return self.right(x, y) + 1"),
    EvalStatus.CRASH: candidate("import os; os._exit(3)"),
    EvalStatus.RUNTIME_ERROR: candidate("raise ValueError('boo')"),
    EvalStatus.DECOY: candidate("return self.torch_only(x, y)"),
    EvalStatus.LOAD_ERROR: "import torch\n",
}


@dataclass
class Storm:
    """Kills one process after another while `results` grows."""

    results: list = field(default_factory=list)
    killed: Counter = field(default_factory=Counter)
    victims: list = field(default_factory=list)
    memory: set = field(default_factory=set)
    chance: random.Random = field(default_factory=lambda: random.Random(20261121))

    def rage(self) -> None:
        plan = self.chance.sample(PLAN, len(PLAN))
        for number, kind in enumerate(plan, 1):
            while len(self.results) < number * EVALUATIONS / (len(plan) + 2):
                time.sleep(0.005)
            while len(self.results) < EVALUATIONS and not self.strike(kind):
                time.sleep(0.002)

    def strike(self, kind: str) -> bool:
        with contextlib.suppress(psutil.Error):
            found = self.find(kind)
            if found:
                self.memory |= named_memory()
                victim = self.chance.choice(found)
                victim.kill()
                self.killed[kind] += 1
                self.victims.append(victim)
                return True
        return False

    def find(self, kind: str) -> list[psutil.Process]:
        levels = {"actor": 0, "judge": 1, "zygote": 2, "runner": 3}
        return below(named("ray::JudgeActor"), levels[kind])


def jobs() -> list[tuple[EvalStatus, str]]:
    """What each candidate deserves, and its source; every second one is honest."""
    others = [status for status in CANDIDATES if status is not EvalStatus.OK]
    wanted = [EvalStatus.OK if n % 2 == 0 else others[n // 2 % len(others)] for n in range(EVALUATIONS)]
    return [(status, f"{CANDIDATES[status]}\n# {number}\n") for number, status in enumerate(wanted)]


def zombies() -> list[psutil.Process]:
    found = []
    for process in family():
        with contextlib.suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def descriptors() -> list[str]:
    """What processes of ours have open."""
    found = []
    for process in family():
        with contextlib.suppress(OSError):
            found += [str(link.readlink()) for link in Path(f"/proc/{process.pid}/fd").iterdir()]
    return found


def named_memory() -> set[str]:
    """Files of /dev/shm that processes of ours have mapped or open; the other files there belong to others."""
    found = set(descriptors())
    for process in family():
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
            found.update("".join(line.partition("/dev/shm/")[1:]) for line in lines)
    return {text.removesuffix(" (deleted)") for text in found if text.startswith("/dev/shm/")}


@pytest.fixture
def short_path():
    """Ray's sockets lie in it, and the path of a socket has 107 characters at most."""
    with tempfile.TemporaryDirectory(prefix="storm", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.ray
def test_storm(short_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setenv("TMPDIR", str(short_path))  # of every process that Ray starts from here
    storm, wanted = Storm(), jobs()
    with ray_gym(OPTIONS, "storm", seed=3) as gym:

        async def one(source: str):
            result = await gym.evaluate(TASK, source)
            storm.results.append(result)
            return result

        async def all_of_them():
            return await asyncio.gather(*(one(source) for _, source in wanted))

        start = time.monotonic()
        thread = threading.Thread(target=storm.rage)
        thread.start()
        results = asyncio.run(all_of_them())
        thread.join()
        seconds = time.monotonic() - start

        infra = [result for result in results if result.status is EvalStatus.INFRA_ERROR]
        wrong = [
            (result.status, status, result.error)
            for result, (status, _) in zip(results, wanted, strict=True)
            if result.status is not status and result not in infra
        ]
        killed = [item for item in wrong if item[0] is EvalStatus.CRASH and item[2].signal == signal.SIGKILL]
        wrong = [item for item in wrong if item not in killed]
        stats = gym.stats()
        print(f"{seconds:.0f} s, killed {dict(storm.killed)}, {len(infra)} infra errors, {stats.retries} retries")
        assert len(results) == EVALUATIONS
        assert wrong == []
        assert len(killed) <= storm.killed["runner"]
        assert sum(storm.killed.values()) >= 40
        assert all(result.attempts >= 2 for result in infra)
        hit = sum(storm.killed.values()) - len(killed)
        assert stats.retries + len(infra) <= hit  # no attempt failed that was not hit
        until(lambda: (stats := gym.stats()).queue + stats.held_back + stats.busy == 0)
        until(lambda: gym.stats().alive == 2)
        until(lambda: not [victim for victim in storm.victims if victim.is_running()])
        until(lambda: not zombies())
        until(lambda: not [name for name in descriptors() if "memfd:verl_kernel" in name])
        left = [path.name for path in short_path.glob("verl_kernel_*/verl_kernel_*")]
        assert left == [], "scratch directories of candidates"
        assert len(list(short_path.glob("verl_kernel_judge_*"))) == 2
    until(lambda: not list(short_path.glob("verl_kernel_*/verl_kernel_*")))
    until(lambda: not [name for name in storm.memory if Path(name).exists()])
