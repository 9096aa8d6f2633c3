# SPDX-License-Identifier: Apache-2.0
"""Files in the columns of published data sets, made here, pass through `verl-kernel data` to a training step."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.data import published_files as files
from tests.e2e.runs import command, train
from verl_kernel.data.sources import SOURCES, names
from verl_kernel.quickstart.options import WarmStart
from verl_kernel.quickstart.warm_start import train as train_on_talks

pytestmark = [*(pytest.mark.e2e, pytest.mark.slow, pytest.mark.ray, pytest.mark.exhaustive), pytest.mark.timeout(7200)]
TASKS = [name for name in files.ONE_SIZE if name != "drkernel-validation"]


def converted(folder: Path, name: str, count: int) -> Path:
    out = folder / "data" / f"{name}.parquet"
    words = ["data", SOURCES[name].kind, name, files.write(folder, name, count), "--out", out]
    subprocess.run([sys.executable, "-m", "verl_kernel", *map(str, words)], check=True, timeout=300)
    return out


@pytest.fixture(scope="module")
def run(quickstart, tmp_path_factory):
    """One step of the CPU recipe on two tasks of each source, with the published prompts and with ours."""
    folder = tmp_path_factory.mktemp("published")
    tasks = ",".join(str(converted(folder, name, 2)) for name in TASKS)
    words = command(
        quickstart, folder, f"data.train_files=[{tasks}]",
        f"data.val_files={converted(folder, 'drkernel-validation', 2)}", "data.max_prompt_length=600",
        "data.max_response_length=240", "trainer.total_training_steps=1", "trainer.save_freq=-1",
        "data.train_batch_size=8", "actor_rollout_ref.actor.ppo_mini_batch_size=8", "actor_rollout_ref.rollout.n=2",
        "kernelgym.max_turns=1", f"trainer.default_local_dir={folder}/checkpoints",
        f"trainer.v1.sampler.sampler_kwargs.record_dir={folder}/samples",
    )  # fmt: skip
    return train(folder, words)


def test_tasks_of_every_source_are_trained_on_together(run):
    (step,) = run.steps
    assert step["training/global_step"] == 1
    assert step["actor/loss"] == step["actor/loss"]
    rows = run.rows(1)
    assert len(rows) == 8 * 2
    judged = {turn["result"]["task_id"].rpartition("-")[0] or "kernelbench" for row in rows for turn in row["turns"]}
    assert judged == {"drkernel-rl", "kernelbook", "kernelsmith-rl", "kernelbench"}
    assert all(turn["result"]["task_hash"] for row in rows for turn in row["turns"])


def test_conversations_of_every_source_are_trained_on_together(quickstart, tmp_path):
    talks = ",".join(str(converted(tmp_path, name, 3)) for name in names("talks"))
    shutil.copytree(quickstart / "model", tmp_path / "sft" / "model")
    options, overrides = WarmStart(batch_size=6, threads=1), [f"data.train_files=[{talks}]", "data.max_length=4096"]
    (loss,) = train_on_talks(tmp_path, options, lambda step, loss: None, overrides)[1]
    assert 0 < loss < 20
