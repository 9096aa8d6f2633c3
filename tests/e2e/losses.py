# SPDX-License-Identifier: Apache-2.0
"""A run that loses the whole pool of judges, then one judge's actor at work, goes on, and is killed itself."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas
import psutil

from tests.e2e.runs import Run, command, environment

START_S = 3600
GONE_S = 300
LR = 3e-4
"""Large enough that stale weights in vLLM would show in its log-probs.

Small enough that right answers stay: at 1e-3 most of them were gone after three steps, on one machine all."""


@dataclass
class Killed:
    folder: Path
    prompts: list[str]
    """Of the training set, in the order in which the recipe takes them."""
    steps: list[dict]
    log: str
    at_work: list[str]
    """Command lines of all its processes just before its end."""
    left: list[str]
    """Those that outlived it."""

    @property
    def done(self) -> int:
        """The step of its last checkpoint."""
        return int((self.folder / "checkpoints" / "latest_checkpointed_iteration.txt").read_text())


def checkpoints(folder: Path) -> list[str]:
    """Overrides: every step leaves what a run can go on from, and a model that can be loaded."""
    return [
        "trainer.save_freq=1",
        f"trainer.default_local_dir={folder}/checkpoints",
        "actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model]",
        "actor_rollout_ref.actor.checkpoint.load_contents=[model,optimizer,extra]",
        f"actor_rollout_ref.actor.optim.lr={LR}",
    ]


def lose_and_kill(quickstart: Path, folder: Path) -> Killed:
    """verl's stock single-turn loop with GRPO, as another recipe would use the reward manager; three steps at least."""
    # A row's agent_name would win over default_agent_loop.
    rows = pandas.read_parquet(quickstart / "train.parquet").drop(columns="agent_name")
    rows.to_parquet(folder / "train.parquet")
    words = command(
        quickstart, folder, f"data.train_files={folder}/train.parquet",
        "actor_rollout_ref.rollout.agent.default_agent_loop=single_turn_agent", "algorithm.adv_estimator=grpo",
        "trainer.v1.sampler.custom_sampler.path=null", "trainer.v1.sampler.custom_sampler.name=null",
        *checkpoints(folder),
    )  # fmt: skip
    with (folder / "train.log").open("w") as log:
        trainer = subprocess.Popen(words, cwd=folder, env=environment(folder), stdout=log, stderr=subprocess.STDOUT)
    run = Run(folder)
    try:
        wait_for_step(run, trainer, 1)
        kill([*named(folder, "ray::Router"), *named(folder, "ray::JudgeActor")])
        wait_for_step(run, trainer, 2)
        kill([wait_for_judge_held_at_work(folder)])
        wait_for_step(run, trainer, 3)
        family = relatives(folder)
        at_work = alive(family)
    finally:
        os.kill(trainer.pid, signal.SIGKILL)
        trainer.wait()
    # Ray's own two agents look for their parent about once a minute, and end by themselves.
    wait_for(lambda: all(map(is_rays_agent, alive(family))), GONE_S)
    left = [name for name in alive(family) if not is_rays_agent(name)]
    prompts = [messages[0]["content"] for messages in rows["prompt"]]
    return Killed(folder, prompts, run.steps, run.log, at_work, left)


def wait_for_step(run: Run, trainer: subprocess.Popen, step: int) -> None:
    wait_for(lambda: (run.has_steps and len(run.steps) >= step) or trainer.poll() is not None, START_S)
    assert trainer.poll() is None, run.log[-3000:]
    assert len(run.steps) >= step, run.log[-3000:]


def wait_for_judge_held_at_work(folder: Path) -> psutil.Process:
    """The actor of a judge whose candidate was stopped, so that its evaluation cannot end any more."""
    found = []
    wait_for(lambda: found.extend(filter(stop_runner, named(folder, "ray::JudgeActor"))) or found, START_S)
    return found[0]


def named(folder: Path, title: str) -> list[psutil.Process]:
    return [process for process in relatives(folder) if title in "".join(asked(process.cmdline)[:1])]


def stop_runner(actor: psutil.Process) -> bool:
    """Stop the runner that lives beneath a judge's actor (actor, judge, zygote, runner), where there is one."""
    for child in descendants(actor):
        if sum(actor in asked(parent.parents) for parent in asked(child.parents)) >= 2:
            with suppress(psutil.Error):
                child.suspend()
                return True
    return False


def kill(processes: list[psutil.Process]) -> None:
    assert processes
    for process in processes:
        process.kill()


def relatives(folder: Path) -> set[psutil.Process]:
    """Processes whose environment names this run's folder: whatever the trainer started, however detached."""
    mark = ("VERL_KERNEL_TEST_RUN", str(folder))
    found = {process for process in psutil.process_iter() if mark in dict(asked(process.environ)).items()}
    return found - {psutil.Process()} | {child for one in found for child in descendants(one)}


def descendants(process: psutil.Process) -> Sequence[psutil.Process]:
    return asked(lambda: process.children(recursive=True))


def asked(question: Callable[[], Any]) -> Any:
    """What a process answers; nothing where it has gone."""
    try:
        return question()
    except psutil.Error:
        return ()


def alive(family: set[psutil.Process]) -> list[str]:
    """Command lines of those that still run."""
    found = []
    for process in family:
        try:
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()) or process.name())
        except psutil.Error:
            continue
    return found


def is_rays_agent(name: str) -> bool:
    return name.strip().endswith(("DashboardAgent", "RuntimeEnvAgent"))


def wait_for(condition: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.5)
