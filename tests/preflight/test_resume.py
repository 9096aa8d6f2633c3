# SPDX-License-Identifier: Apache-2.0
"""A run resumes its own checkpoints and no other's."""

import json
from pathlib import Path

import pytest
from omegaconf import DictConfig

from tests.config.composed import CONFIG, composed
from verl_kernel.errors import ConfigError
from verl_kernel.preflight.resume import check_resumed, remember
from verl_kernel.run_name import run_name

pytestmark = pytest.mark.slow

METHODS = sorted((CONFIG / "method").glob("*.yaml"))
PATH = "trainer.resume_mode=resume_path"


def config(folder: Path, *overrides: str, hidden: int = 4096) -> DictConfig:
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model" / "config.json").write_text(json.dumps({"hidden_size": hidden}))
    given = f"trainer.default_local_dir={folder}", f"actor_rollout_ref.model.path={folder}/model"
    return composed("kernel_trloo", *given, *overrides)


@pytest.fixture
def written(tmp_path):
    """What a run of the default size leaves: its settings and a checkpoint, as verl writes it."""
    remember(config(tmp_path))
    actor = tmp_path / "global_step_2" / "actor"
    (actor / "huggingface").mkdir(parents=True)
    (actor / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 2, "world_size": 4}))
    (actor / "huggingface" / "config.json").write_text(json.dumps({"hidden_size": 4096}))
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("2")
    return tmp_path


@pytest.mark.parametrize(("overrides", "hidden", "words"), [
    (("gpus=one",), 4096, "trainer.nnodes x trainer.n_gpus_per_node 4, and this run has 1"),
    ((), 1024, "a model whose hidden_size is 4096, and this run has 1024"),
    (("actor_rollout_ref.actor.strategy=fsdp",), 4096, "actor.strategy fsdp2, and this run has fsdp:"),
    (("method=rsft",), 4096, "algorithm.adv_estimator = trloo, and this run has rsft"),
    (("kernelgym.max_turns=1",), 4096, "kernelgym.max_turns = 3, and this run has 1"),
    ((PATH, "trainer.n_gpus_per_node=2", "trainer.resume_from_path=HERE/global_step_2"), 4096, "has 2"),
    ((PATH, "trainer.resume_from_path=HERE/global_step_4"), 4096, "name the folder of a step"),
])  # fmt: skip
def test_a_checkpoint_of_another_run_is_refused(written, overrides, hidden, words):
    overrides = (word.replace("HERE", str(written)) for word in overrides)
    with pytest.raises(ConfigError) as refused:
        check_resumed(config(written, *overrides, hidden=hidden))
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("overrides", [
    (), ("trainer.total_training_steps=9", "actor_rollout_ref.actor.optim.lr=1e-7"),
    ("trainer.resume_mode=disable", "gpus=one"), (PATH, "trainer.resume_from_path=HERE/global_step_2", "method=rsft"),
])  # fmt: skip
def test_a_run_goes_on_with_its_own(written, overrides):
    here = (word.replace("HERE", str(written)) for word in overrides)
    check_resumed(config(written, *here))


def test_every_size_method_model_and_recipe_has_its_own_folder():
    assert [path for path in METHODS if f"\nmethod_name: {path.stem}\n" not in path.read_text()] == []
    runs = [("kernel_trloo", "gpus=one"), ("kernel_trloo",), ("kernel_trloo", "method=rsft"), ("drkernel_8b",)]
    runs += [("kernel_trloo", "actor_rollout_ref.model.path=my/other"), ("drkernel_14b",)]
    folders = [composed(*run).trainer.default_local_dir for run in runs]
    assert len(set(folders)) == len(runs)
    assert folders[0] == "checkpoints/kernel_runs/kernel_trloo-dr_kernel-Qwen3-0.6B-one"
    assert run_name("r", "m", "/data/mine/actor/huggingface", "one") == "r-m-mine-one"
