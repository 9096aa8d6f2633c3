# SPDX-License-Identifier: Apache-2.0
"""Pins what the plugin, the estimators, the losses and the mismatch presets lean on in verl."""

from __future__ import annotations

import ast
import dataclasses
import importlib.metadata
from typing import Any

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.compat.pins import VERL, parameters, source_of

# The plugin.


def test_the_installed_verl_is_a_supported_one() -> None:
    stated = [Requirement(line) for line in importlib.metadata.requires("verl-kernel")]
    claims = {str(claim.specifier) for claim in stated if claim.name == "verl"}  # of several extras
    # Of the distribution: `make test-next` puts a checkout with another version in front of it.
    assert [importlib.metadata.version("verl") in SpecifierSet(claim) for claim in claims] == [True]


def test_verl_loads_entry_points_of_the_group_we_declare() -> None:
    source = (VERL / "__init__.py").read_text()
    assert 'group="verl.plugins"' in source
    assert "VERL_USE_EXTERNAL_PLUGINS" in source


# Advantage estimators.


def test_estimators_register_in_a_dict_by_name() -> None:
    from verl.trainer.ppo import core_algos

    assert isinstance(core_algos.ADV_ESTIMATOR_REGISTRY, dict)
    assert parameters(core_algos.register_adv_est) == ["name_or_enum"]
    assert core_algos.get_adv_estimator_fn("rloo") is core_algos.ADV_ESTIMATOR_REGISTRY["rloo"]


def test_estimators_get_rewards_mask_config_and_uid(monkeypatch: pytest.MonkeyPatch) -> None:
    from verl.protocol import DataProto
    from verl.trainer.ppo import core_algos
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

    seen: dict[str, Any] = {}

    def spy(**kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        seen.update(kwargs)
        return kwargs["token_level_rewards"], kwargs["token_level_rewards"]

    monkeypatch.setitem(core_algos.ADV_ESTIMATOR_REGISTRY, "spy", spy)
    data = DataProto.from_dict(
        {"token_level_rewards": torch.zeros(2, 3), "response_mask": torch.ones(2, 3)},
        {"uid": np.array(["a", "a"], dtype=object)},
    )
    algorithm = OmegaConf.create({"adv_estimator": "spy"})
    out = compute_advantage_for_multi_trajectories(data, ["a_0_0", "a_1_0"], adv_estimator="spy", config=algorithm)
    assert set(seen) == {"token_level_rewards", "response_mask", "config", "index"}
    assert seen["config"] is algorithm
    assert "advantages" in out.batch
    assert "returns" in out.batch


def test_policy_losses_register_and_get_rollout_weights() -> None:
    from verl.trainer.ppo import core_algos

    assert isinstance(core_algos.POLICY_LOSS_REGISTRY, dict)
    assert parameters(core_algos.compute_policy_loss_vanilla) == [
        *("old_log_prob", "log_prob", "advantages", "response_mask", "loss_agg_mode", "config", "rollout_is_weights")
    ]
    loss = ast.unparse(source_of("workers/utils/losses.py", "ppo_loss"))
    assert "get_policy_loss_fn(loss_mode)" in loss
    assert "rollout_is_weights=rollout_is_weights" in loss


def test_the_actors_nodes_become_the_classes_that_they_name(verl_config: DictConfig) -> None:
    assert verl_config.actor_rollout_ref.actor.policy_loss._target_ == "verl.workers.config.PolicyLossConfig"
    worker = ast.unparse(source_of("workers/engine_workers.py", "ActorRolloutRefWorker"))
    assert "omega_conf_to_dataclass(self.config.actor)" in worker


def test_the_algorithm_node_takes_a_node_of_ours(verl_config: DictConfig) -> None:
    assert {"adv_estimator", "gamma", "use_kl_in_reward", "rollout_correction"} <= set(verl_config.algorithm)
    assert "use_kl_loss" in verl_config.actor_rollout_ref.actor
    with initialize_config_module("verl.trainer.config", version_base=None):
        assert compose("ppo_trainer", overrides=["+algorithm.trloo.gamma=0.5"]).algorithm.trloo.gamma == 0.5


def test_the_algorithm_node_names_a_closed_class_hence_ours(verl_config: DictConfig) -> None:
    from verl.trainer.config import AlgoConfig
    from verl.utils.config import omega_conf_to_dataclass

    assert verl_config.algorithm._target_ == "verl.trainer.config.AlgoConfig"
    assert isinstance(omega_conf_to_dataclass(verl_config.algorithm), AlgoConfig)
    with pytest.raises(TypeError):
        AlgoConfig(trloo={})
    assert AlgoConfig().get("trloo", None) is None
    assert AlgoConfig().get("gamma") == 1.0


def test_loss_aggregation_takes_the_scale_of_the_recipe() -> None:
    from verl.trainer.ppo.core_algos import agg_loss

    loss = agg_loss(
        loss_mat=torch.ones(2, 4),
        loss_mask=torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0]]),
        loss_agg_mode="seq-mean-token-sum-norm",
        dp_size=1,
        batch_num_tokens=2,
        global_batch_size=2,
        loss_scale_factor=10,
    )
    assert loss.item() == pytest.approx(2 / 2 / 10)


def test_policy_losses_register_by_name() -> None:
    from verl.trainer.ppo.core_algos import get_policy_loss_fn, register_policy_loss

    assert parameters(register_policy_loss) == ["name"]
    assert callable(get_policy_loss_fn("vanilla"))


# Rollout correction.


def test_rollout_correction_has_the_keys_our_presets_set(verl_config: DictConfig) -> None:
    from verl.trainer.config.algorithm import RolloutCorrectionConfig

    keys = {"rollout_is", "rollout_is_threshold", "rollout_rs", "rollout_rs_threshold", "bypass_mode"}
    assert keys <= set(verl_config.algorithm.rollout_correction)
    assert keys <= {field.name for field in dataclasses.fields(RolloutCorrectionConfig)}


def test_rollout_correction_knows_the_presets_statistics() -> None:
    from verl.trainer.ppo.rollout_corr_helper import SUPPORTED_ROLLOUT_RS_OPTIONS

    assert {"seq_mean_k1", "seq_max_k2"} <= SUPPORTED_ROLLOUT_RS_OPTIONS


def test_bypass_mode_skips_the_correction() -> None:
    source = ast.unparse(source_of("trainer/ppo/v1/trainer_base.py", "PPOTrainer", "_compute_advantage"))
    assert "and (not bypass_recomputing_logprobs)" in source


def test_micro_batch_metrics_must_be_alike_on_every_rank() -> None:
    from verl.utils.metric import AggregationType, Metric

    two, one = Metric(AggregationType.MEAN, 1.0), Metric(AggregationType.MEAN, 1.0)
    two.append(2.0)
    with pytest.raises(ValueError, match="same number of values"):
        Metric.aggregate_dp([two, one])


def test_rollout_correction_refuses_an_empty_mask() -> None:
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask

    with pytest.raises(ValueError, match="at least one valid token"):
        compute_rollout_correction_and_rejection_mask(torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 2))
