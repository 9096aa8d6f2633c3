# SPDX-License-Identifier: Apache-2.0
"""Real runs of `python -m verl.trainer.main_ppo`: nothing in their path is a stand-in."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from verl_kernel.quickstart.build import Quickstart, build, is_complete

ROOT = Path(__file__).parents[2]
TRAINER = (sys.executable, "-m", "verl.trainer.main_ppo", "--config-name=cpu_quickstart")


@dataclass
class Run:
    """A finished training run."""

    folder: Path

    @property
    def log(self) -> str:
        return (self.folder / "train.log").read_text(encoding="utf-8", errors="replace")

    @property
    def has_steps(self) -> bool:
        """Whether a step has been logged yet."""
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
        **os.environ,
        "VERL_PLATFORM": "cpu",
        "HF_HUB_OFFLINE": "1",
        "VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl"),
        "TENSORBOARD_DIR": str(folder / "tensorboard"),
        "VERL_KERNEL_TEST_RUN": str(folder),
    }


def overrides(quickstart: Path, folder: Path) -> list[str]:
    """Where the run finds its data and leaves its rollouts; no validation."""
    folders = [f"quickstart_dir={quickstart}", f"trainer.rollout_data_dir={folder}/rollouts"]
    return [*folders, "trainer.val_before_train=false", "trainer.test_freq=-1"]


def train(quickstart: Path, folder: Path, *extra: str, timeout: int = 900) -> Run:
    """Run the CPU recipe in a subprocess and fail with its last lines if it fails."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "verl.trainer.main_ppo",
        "--config-name=cpu_quickstart",
        *overrides(quickstart, folder),
        *extra,
    ]
    with (folder / "train.log").open("w") as log:
        code = subprocess.run(
            command, cwd=folder, env=environment(folder), stdout=log, stderr=subprocess.STDOUT, timeout=timeout,
            check=False,
        ).returncode  # fmt: skip
    run = Run(folder)
    assert code == 0, "\n".join(run.log.splitlines()[-60:])
    return run


@pytest.fixture(scope="session")
def quickstart() -> Path:
    """Model, tokenizer and data: the quickstart's where they are made, else from fewer talks; reused while complete."""
    full, small = ROOT / "outputs" / "quickstart", ROOT / "outputs" / "quickstart_small"
    if is_complete(full, Quickstart()):
        return full
    options = Quickstart(conversations=2400)
    if not is_complete(small, options):
        build(small, options, lambda step, steps, loss: None)
    return small
