# SPDX-License-Identifier: Apache-2.0
"""Starts of verl's trainer, and what a run left behind."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PROMPTS, SAMPLES = 4, 4
"""Of a step, and of a prompt: half as many as the recipe has."""
TRAINER = (sys.executable, "-m", "verl.trainer.main_ppo", "--config-name=cpu_quickstart")


@dataclass
class Run:
    """A training run's folder; steps and samples are those since its last start."""

    folder: Path

    @property
    def log(self) -> str:
        return (self.folder / "train.log").read_text(encoding="utf-8", errors="replace")

    @property
    def has_steps(self) -> bool:
        metrics = self.folder / "metrics.jsonl"
        return metrics.exists() and metrics.stat().st_size > 0

    @property
    def steps(self) -> list[dict]:
        lines = (self.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line)["data"] for line in lines]

    def rows(self, step: int) -> list[dict]:
        """What the sampler handed to the trainer in one step, a row per trajectory."""
        lines = (self.folder / "samples" / f"{step}.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]


def environment(folder: Path) -> dict[str, str]:
    """The CPU platform, logs in `folder`, and a mark by which the run's processes can be told."""
    return {
        **os.environ, "VERL_PLATFORM": "cpu", "HF_HUB_OFFLINE": "1",
        "VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl"), "TENSORBOARD_DIR": str(folder / "tensorboard"),
        "VERL_KERNEL_TEST_RUN": str(folder),
    }  # fmt: skip


def command(quickstart: Path, folder: Path, *extra: str, recipe: str = "cpu_quickstart") -> list[str]:
    """A CPU recipe with the run's data and rollouts in their places, fewer samples, and without validation."""
    folders = [f"quickstart_dir={quickstart}", f"trainer.rollout_data_dir={folder}/rollouts"]
    sizes = [
        f"actor_rollout_ref.rollout.n={SAMPLES}", f"data.train_batch_size={PROMPTS}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS}",
    ]  # fmt: skip
    return [
        *TRAINER[:-1], f"--config-name={recipe}", *folders, *sizes, "trainer.val_before_train=false",
        "trainer.test_freq=-1", *extra,
    ]  # fmt: skip


def train(folder: Path, words: list[str], timeout: int = 3600) -> Run:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "train.log").open("w") as log:
        done = subprocess.run(
            words, cwd=folder, env=environment(folder), stdout=log, stderr=subprocess.STDOUT, timeout=timeout
        )
    run = Run(folder)
    assert done.returncode == 0, "\n".join(run.log.splitlines()[-60:])
    return run
