# SPDX-License-Identifier: Apache-2.0
"""Pins what recipes and checks before the start lean on in verl's trainers."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import transfer_queue
from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.v1 import get_trainer_cls

from tests.compat.pins import VERL, source_of


def test_bypass_mode_takes_the_samplers_log_probabilities() -> None:
    trainer = "trainer/ppo/v1/trainer_base.py"
    source = ast.unparse(source_of(trainer, "PPOTrainer", "_compute_old_log_prob"))
    assert "data['old_log_probs'] = data.pop('rollout_log_probs')" in source
    source = ast.unparse(source_of(trainer, "PPOTrainer", "_compute_advantage"))
    assert "and (not bypass_recomputing_logprobs)" in source


@pytest.fixture
def trainer(verl_config: DictConfig) -> Callable[[str], Any]:
    """A trainer of a mode that has not been set up, with batches of four prompts."""

    def make(mode: str) -> Any:
        made = object.__new__(get_trainer_cls(mode))
        made.config, made.trainer_mode, made.global_steps = verl_config.copy(), mode, 3
        made.config.data.train_batch_size = 4
        return made

    return make


@pytest.mark.parametrize("mode", ["colocate_async", "separate_async"])
def test_asynchronous_trainers_run_ahead_by_num_warmup_batches(mode: str, trainer: Callable[[str], Any]) -> None:
    made, prompts = trainer(mode), []
    made._restored_tq_prompt_count = 0
    made._add_prompts_to_generate = prompts.append
    made._add_batch_to_generate = lambda: prompts.append(4)
    made.config.trainer.v1[mode].num_warmup_batches = 3
    made.on_train_begin()
    assert sum(prompts) == 12


@pytest.mark.parametrize(("mode", "kept"), [("sync", []), ("colocate_async", ["transfer_queue"])])
def test_checkpoints_of_asynchronous_trainers_hold_the_queue(
    mode: str, kept: list[str], trainer: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, queues = trainer(mode), []
    monkeypatch.setattr(transfer_queue, "save_checkpoint", lambda path, **_: queues.append(Path(path)))
    made.config.trainer.default_local_dir = str(tmp_path)
    made.use_critic, made.actor_rollout_wg, made.checkpoint_callback = False, Mock(), Mock()
    made.train_dataloader = Mock(state_dict=dict)
    made._save_checkpoint()
    assert (tmp_path / "global_step_3" / "data.pt").exists()
    assert [path.relative_to(tmp_path / "global_step_3").as_posix() for path in queues] == kept


def test_trainer_modes_have_the_names_recipes_use(verl_config: DictConfig) -> None:
    for mode in ("sync", "colocate_async", "separate_async"):
        assert get_trainer_cls(mode).__name__.startswith("PPOTrainer")
        assert mode in verl_config.trainer.v1


def test_main_ppo_starts_from_ppo_trainer_with_the_v1_trainer(verl_config: DictConfig) -> None:
    source = (VERL / "trainer/main_ppo.py").read_text()
    assert '@hydra.main(config_path="config", config_name="ppo_trainer"' in source
    assert "class TaskRunnerV1" in source
    assert verl_config.trainer.use_v1 is True
    assert verl_config.trainer.v1.trainer_mode == "sync"


def test_recipes_find_the_keys_they_override(verl_config: DictConfig) -> None:
    for key in (
        "trainer.v1.sampler.sampler_kwargs",
        "trainer.v1.sampler.custom_sampler.path",
        "trainer.rollout_data_dir",
        "trainer.device",
        "reward.reward_manager.name",
        "reward.num_workers",
        "actor_rollout_ref.rollout.agent.default_agent_loop",
        "actor_rollout_ref.rollout.agent.num_workers",
        "actor_rollout_ref.rollout.calculate_log_probs",
        "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes",
        "actor_rollout_ref.rollout.engine_kwargs.vllm",
        "actor_rollout_ref.actor.loss_agg_mode",
        "actor_rollout_ref.actor.loss_scale_factor",
    ):
        assert OmegaConf.select(verl_config, key, default="missing") != "missing", key
