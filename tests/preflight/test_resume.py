# SPDX-License-Identifier: Apache-2.0
"""A run resumes its own checkpoints and no other's."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.config.composed import CONFIG, composed
from verl_kernel.errors import ConfigError
from verl_kernel.preflight.resume import check_resumed, remember
from verl_kernel.run_name import run_name

pytestmark = pytest.mark.slow
HERE = "trainer.default_local_dir=.", "actor_rollout_ref.model.path=./model"
STEP = "trainer.resume_mode=resume_path trainer.resume_from_path=global_step_"


@pytest.fixture
def written(tmp_path, monkeypatch):
    """What a run of the default size leaves where it ran, as verl writes it."""
    monkeypatch.chdir(tmp_path)
    remember(composed("kernel_trloo", *HERE))
    for folder in ("model", "global_step_2/actor/huggingface"):
        Path(folder).mkdir(parents=True)
        Path(folder, "config.json").write_text(json.dumps({"hidden_size": 4096}))
    Path("global_step_2/actor/fsdp_config.json").write_text(json.dumps({"FSDP_version": 2, "world_size": 4}))
    Path("latest_checkpointed_iteration.txt").write_text("2")


@pytest.mark.parametrize(("overrides", "hidden", "words"), [
    ("gpus=one", 4096, "trainer.nnodes x trainer.n_gpus_per_node 4, and this run has 1"),
    ("", 1024, "a model whose hidden_size is 4096, and this run has 1024"),
    ("actor_rollout_ref.actor.strategy=fsdp", 4096, "actor.strategy fsdp2, and this run has fsdp:"),
    ("method=rsft", 4096, "algorithm.adv_estimator = trloo, and this run has rsft"),
    ("kernelgym.max_turns=1", 4096, "kernelgym.max_turns = 3, and this run has 1"),
    (f"{STEP}2 trainer.n_gpus_per_node=2", 4096, "has 2"), (f"{STEP}4", 4096, "name the folder of a step"),
    ("trainer.total_training_steps=9 actor_rollout_ref.actor.optim.lr=1e-7", 4096, None),
    ("trainer.resume_mode=disable gpus=one", 4096, None), (f"{STEP}2 method=rsft", 4096, None),
])  # fmt: skip
def test_a_checkpoint_of_another_run_is_refused(written, overrides, hidden, words):
    Path("model", "config.json").write_text(json.dumps({"hidden_size": hidden}))
    with pytest.raises(ConfigError, match=words) if words else nullcontext():
        check_resumed(composed("kernel_trloo", *HERE, *overrides.split()))


def test_every_size_method_model_and_recipe_has_its_own_folder():
    methods = (CONFIG / "method").glob("*.yaml")
    assert [path for path in methods if f"\nmethod_name: {path.stem}\n" not in path.read_text()] == []
    runs = ["kernel_trloo gpus=one", "kernel_trloo", "kernel_trloo method=rsft", "drkernel_8b", "drkernel_14b"]
    folders = [composed(*run.split()).trainer.default_local_dir for run in runs]
    assert len(set(folders)) == len(runs)
    assert folders[0] == "checkpoints/kernel_runs/kernel_trloo-dr_kernel-Qwen3-0.6B-one"
    assert run_name("r", "m", "/data/mine/actor/huggingface", "one") == "r-m-mine-one"
