# SPDX-License-Identifier: Apache-2.0
"""The reward manager `kernelgym` in verl's stock single-turn loop with GRPO: what another recipe would do.

On the way it loses the whole pool of judges after its first step and one judge's actor in mid-step, and goes on.
Then the run itself is killed, and neither workers nor vLLM's nor the gym's processes may outlive it. Resumed, it goes
on after its last checkpoint, with the data that come next.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas
import psutil
import pytest

from tests.e2e.conftest import TRAINER, Run, environment, overrides
from verl_kernel.reporting.steps import read_steps

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(1500)]

GONE_S = 30
START_S = 600


def test_stock_loop_survives_the_loss_of_its_judges_and_nothing_outlives_it(quickstart: Path, tmp_path: Path):
    # A row's agent_name would win over the recipe's default_agent_loop.
    rows = pandas.read_parquet(quickstart / "train.parquet").drop(columns="agent_name")
    rows.to_parquet(tmp_path / "train.parquet")
    command = [
        *TRAINER,
        *overrides(quickstart, tmp_path),
        f"data.train_files={tmp_path}/train.parquet",
        "actor_rollout_ref.rollout.agent.default_agent_loop=single_turn_agent",
        "algorithm.adv_estimator=grpo",
        "trainer.v1.sampler.custom_sampler.path=null",
        "trainer.v1.sampler.custom_sampler.name=null",
        "trainer.save_freq=1",
        f"trainer.default_local_dir={tmp_path}/checkpoints",
    ]
    with (tmp_path / "train.log").open("w") as log:
        trainer = subprocess.Popen(
            command, cwd=tmp_path, env=environment(tmp_path), stdout=log, stderr=subprocess.STDOUT
        )
    run = Run(tmp_path)
    try:
        wait_for_step(run, trainer, 1)
        kill([*named(tmp_path, "ray::Router"), *named(tmp_path, "ray::JudgeActor")])
        wait_for_step(run, trainer, 2)
        kill([wait_for_judge_at_work(tmp_path)])
        wait_for_step(run, trainer, 3)
        family = relatives(tmp_path)
        names = alive(family)
        assert any("raylet" in name for name in names) and any("verl_kernel.env" in name for name in names)
    finally:
        os.kill(trainer.pid, signal.SIGKILL)
        trainer.wait()
    # Ray's own two agents look for their parent about once a minute, and end by themselves.
    wait_for(lambda: all(map(is_rays_agent, alive(family))), GONE_S)
    assert not [name for name in alive(family) if not is_rays_agent(name)]

    for step in run.steps[:3]:
        assert step["critic/score/max"] > step["critic/score/min"] >= 0
        assert step["actor/grad_norm"] > 0
    assert "the pool kernelgym was lost and begins again" in run.log
    assert "a judge's actor is gone" in run.log
    check_resumed(tmp_path, command, rows)


def check_resumed(folder: Path, command: list[str], rows: pandas.DataFrame) -> None:
    """Let the killed run go on for one step and look at what it was given."""
    done = int((folder / "checkpoints" / "latest_checkpointed_iteration.txt").read_text())
    going_on = ["trainer.resume_mode=auto", f"trainer.total_training_steps={done + 1}"]
    watcher = [Path(sys.executable).with_name("verl-kernel"), "watch", "--resume", folder, "--"]
    said = subprocess.run(
        [*watcher, *command, *going_on], cwd=folder, env=environment(folder), text=True, capture_output=True, check=True
    )
    assert f"global_step_{done}: step {done + 1} is next" in said.stdout
    assert [step["step"] for step in read_steps(folder / "metrics.jsonl")] == list(range(1, done + 2))
    dumped = (folder / "rollouts" / f"{done + 1}.jsonl").read_text().splitlines()
    prompts = {json.loads(line)["input"] for line in dumped}
    # The recipe does not shuffle: step k takes the k-th eight rows.
    expected = [messages[0]["content"] for messages in rows["prompt"][8 * done : 8 * (done + 1)]]
    assert len(prompts) == 8 and all(any(text in prompt for prompt in prompts) for text in expected)


def wait_for_step(run: Run, trainer: subprocess.Popen, step: int) -> None:
    wait_for(lambda: (run.has_steps and len(run.steps) >= step) or trainer.poll() is not None, START_S)
    assert trainer.poll() is None and len(run.steps) >= step, run.log[-3000:]


def wait_for_judge_at_work(folder: Path) -> psutil.Process:
    found = []
    wait_for(lambda: found.extend(filter(is_at_work, named(folder, "ray::JudgeActor"))) or found, START_S)
    return found[0]


def named(folder: Path, title: str) -> list[psutil.Process]:
    """Actors of the run that carry this title."""
    return [process for process in relatives(folder) if title in title_of(process)]


def title_of(process: psutil.Process) -> str:
    try:
        return "".join(process.cmdline()[:1])
    except psutil.Error:
        return ""


def is_at_work(actor: psutil.Process) -> bool:
    """Whether a runner lives beneath a judge's actor: actor, judge, zygote, runner."""
    return any(len(ancestors_below(child, actor)) >= 2 for child in descendants(actor))


def ancestors_below(process: psutil.Process, top: psutil.Process) -> list[psutil.Process]:
    try:
        return [parent for parent in process.parents() if top in parent.parents()]
    except psutil.Error:
        return []


def kill(processes: list[psutil.Process]) -> None:
    assert processes
    for process in processes:
        process.kill()


def relatives(folder: Path) -> set[psutil.Process]:
    """Processes whose environment names this run's folder: whatever the trainer started, however detached."""
    found = set()
    for process in psutil.process_iter():
        try:
            if process.environ().get("VERL_KERNEL_TEST_RUN") == str(folder):
                found.add(process)
        except psutil.Error:
            continue
    own = psutil.Process()
    return {process for process in found if process != own} | {
        child for process in found for child in descendants(process)
    }


def descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


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


def wait_for(condition, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.5)
