# SPDX-License-Identifier: Apache-2.0
"""A name that verl would look up in vain is refused before the start, and the name that may be meant is told."""

import pytest
from omegaconf import DictConfig, OmegaConf

from tests.config.composed import composed
from tests.sentences import refused
from verl_kernel.data.rows import make_row, write_rows
from verl_kernel.errors import ConfigError, DataError
from verl_kernel.preflight.checks import check_agents
from verl_kernel.preflight.names import check_names

ROLLOUT = "actor_rollout_ref.rollout"
ACTOR = "actor_rollout_ref.actor"
SAMPLER = "trainer.v1.sampler.custom_sampler"


def changed(**values: object) -> DictConfig:
    config = composed("cpu_quickstart")
    for key, value in values.items():
        OmegaConf.update(config, key, value, force_add=True)
    return config


def assert_refused(*words: str, start: str = "", **values: object) -> None:
    with refused(*words, by=ConfigError, start=start):
        check_names(changed(**values))


@pytest.mark.parametrize("recipe", ("cpu_quickstart", "kernel_trloo", "drkernel_8b"))
@pytest.mark.parametrize("mode", ["sync", "separate_async"])
def test_every_recipe_passes(recipe, mode):
    check_names(composed(recipe, f"trainer_mode={mode}"))


@pytest.mark.parametrize(("key", "name", "meant"), [
    ("algorithm.adv_estimator", "trllo", "trloo"),
    (f"{ACTOR}.policy_loss.loss_mode", "rec_onesided_is", "rec_one_side_is"),
    ("reward.reward_manager.name", "kernelgm", "kernelgym"),
    (f"{ROLLOUT}.agent.default_agent_loop", "kernel_agnt", "kernel_agent"),
    ("trainer.v1.trainer_mode", "separate_asinc", "separate_async"),
    (f"{ROLLOUT}.name", "vlm", "vllm"),
    (f"{ROLLOUT}.checkpoint_engine.backend", "nccll", "nccl"),
])  # fmt: skip
def test_a_misspelt_name_is_answered_with_the_one_that_is_meant(key, name, meant):
    assert_refused(start=f"{key} is '{name}'; did you mean {meant}? it must be one of ", **{key: name})


def test_names_of_verl_and_of_others_are_known(monkeypatch):
    from verl.trainer.ppo import core_algos

    check_names(changed(**{"algorithm.adv_estimator": "grpo", f"{ACTOR}.policy_loss.loss_mode": "vanilla"}))
    monkeypatch.setitem(core_algos.POLICY_LOSS_REGISTRY, "somebodys", lambda: None)
    check_names(changed(**{f"{ACTOR}.policy_loss.loss_mode": "somebodys"}))


@pytest.mark.parametrize(("key", "value", "words"), [
    (f"{SAMPLER}.path", "pkg://verl_kernel.sampler.prz", "cannot be loaded (ModuleNotFoundError"),
    (f"{SAMPLER}.path", "/nowhere/sampler.py", "cannot be loaded (FileNotFoundError"),
    (f"{SAMPLER}.name", "PRSReplayBufer", "does not define; did you mean PRSReplayBuffer? "),
    (f"{SAMPLER}.name", None, "give the name"),
    ("reward.custom_reward_function.path", "/nowhere/score.py", "cannot be loaded"),
    ("data.custom_cls.path", "/nowhere/rows.py", "cannot be loaded"),
    (f"{ROLLOUT}.agent.agent_loop_manager_class", "verl_kernel.rollout.manager.Kernel", "does not define"),
    (f"{ROLLOUT}.agent.agent_loop_manager_class", "Manager", "cannot be loaded"),
    (f"{ROLLOUT}.agent.agent_loop_config_path", "/nowhere/loops.yaml", "is no list of agent loops"),
    (f"{ROLLOUT}.checkpoint_engine.custom_backend_module", "verl_kernel.cpu.engine", "cannot be loaded"),
    (f"{ACTOR}.policy_loss._target_", "verl_kernel.loss.config.KernelPolicyLoss", "KernelPolicyLossConfig? "),
    (f"{ACTOR}.optim.optimizer", "SkipingAdamW", "did you mean SkippingAdamW? "),
    (f"{ACTOR}.optim.optimizer_impl", "verl_kernel.loss.optimiser", "cannot be loaded"),
])  # fmt: skip
def test_what_no_file_or_module_holds_is_refused_by_its_key(key, value, words):
    assert_refused(words, start=f"{key} ", **{key: value})


def test_a_module_that_fails_is_named_with_its_reason(tmp_path):
    module = tmp_path / "score.py"
    module.write_text("1 / 0")
    score = {"reward.custom_reward_function.path": str(module)}
    assert_refused(*score, "ZeroDivisionError: division by zero", **score)
    module.write_text("def compute_score(): ...")
    check_names(changed(**score))


def test_a_users_reward_manager_is_looked_up(tmp_path):
    source = {"reward.reward_manager.source": "importlib"}
    assert_refused("reward.reward_manager.module.path is null", **source)
    module = tmp_path / "manager.py"
    module.write_text("class Mine: ...")
    own = {**source, "reward.reward_manager.module.path": str(module)}
    assert_refused("did you mean Mine? ", **own, **{"reward.reward_manager.name": "Mine2"})
    check_names(changed(**own, **{"reward.reward_manager.name": "Mine"}))


def test_agent_loops_of_a_file_are_known(tmp_path):
    loops = tmp_path / "loops.yaml"
    loops.write_text("- name: mine\n  _target_: my.Loop\n")
    agent = f"{ROLLOUT}.agent"
    check_names(changed(**{f"{agent}.agent_loop_config_path": str(loops), f"{agent}.default_agent_loop": "mine"}))
    loops.write_text("- 5\n")
    assert_refused("is no list of agent loops", **{f"{agent}.agent_loop_config_path": str(loops)})


def test_rows_that_name_no_agent_loop_are_refused(tmp_path):
    row = make_row([], "", data_source="own", task_id="a", split="train", index=0)
    paths = {}
    for split, name in (("train", "kernel_agent"), ("val", "kernel_agnt")):
        write_rows([row | {"agent_name": name}, row | {"agent_name": None}], tmp_path / f"{split}.parquet")
        paths[f"data.{split}_files"] = str(tmp_path / f"{split}.parquet")
    with pytest.raises(DataError, match=r"^data\.val_files: .*'kernel_agnt'; did you mean kernel_agent\? it must be"):
        check_agents(changed(**paths))
    check_agents(changed(**paths | {"data.val_files": paths["data.train_files"]}))
