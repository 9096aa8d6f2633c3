# SPDX-License-Identifier: Apache-2.0
"""Pins what estimators, losses and mismatch presets lean on in what verl's algorithms do."""

import importlib.metadata
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.compat.pins import found
from tests.config.composed import composed

CORE = "verl.trainer.ppo.core_algos"
CORRECTION = "verl.trainer.ppo.rollout_corr_helper"


def test_the_installed_verl_is_a_supported_one():
    stated = [Requirement(line) for line in importlib.metadata.requires("verl-kernel")]
    claims = {str(claim.specifier) for claim in stated if claim.name == "verl"}  # of several extras
    # Of the distribution: `make test-next` puts a checkout with another version in front of it.
    assert [importlib.metadata.version("verl") in SpecifierSet(claim) for claim in claims] == [True]


def test_estimators_and_losses_register_in_dicts_by_name():
    estimators = found(f"{CORE}:ADV_ESTIMATOR_REGISTRY")
    assert {type(estimators), type(found(f"{CORE}:POLICY_LOSS_REGISTRY"))} == {dict}
    assert found(f"{CORE}:get_adv_estimator_fn")("rloo") is estimators["rloo"]


def test_estimators_get_rewards_mask_config_and_uid(monkeypatch):
    from verl.protocol import DataProto
    from verl.trainer.ppo import core_algos
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

    seen: dict[str, Any] = {}

    def spy(**kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        seen.update(kwargs)
        return kwargs["token_level_rewards"], kwargs["token_level_rewards"]

    monkeypatch.setitem(core_algos.ADV_ESTIMATOR_REGISTRY, "spy", spy)
    tensors = {"token_level_rewards": torch.zeros(2, 3), "response_mask": torch.ones(2, 3)}
    data = DataProto.from_dict(tensors, {"uid": np.array(["a", "a"], dtype=object)})
    algorithm = OmegaConf.create({"adv_estimator": "spy"})
    out = compute_advantage_for_multi_trajectories(data, ["a_0_0", "a_1_0"], adv_estimator="spy", config=algorithm)
    assert set(seen) == {"token_level_rewards", "response_mask", "config", "index"}
    assert seen["config"] is algorithm
    assert "advantages" in out.batch
    assert "returns" in out.batch


@pytest.mark.slow
def test_nodes_name_closed_classes_hence_our_own(verl_config):
    from verl.trainer.config import AlgoConfig
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.config import PolicyLossConfig

    assert verl_config.algorithm._target_ == "verl.trainer.config.AlgoConfig"
    assert verl_config.actor_rollout_ref.actor.policy_loss._target_ == "verl.workers.config.PolicyLossConfig"
    assert isinstance(omega_conf_to_dataclass(verl_config.algorithm), AlgoConfig)
    with pytest.raises(TypeError):
        AlgoConfig(trloo={})
    with pytest.raises(TypeError):
        PolicyLossConfig(rec={})


def test_nodes_answer_for_missing_keys():
    from verl.trainer.config import AlgoConfig
    from verl.workers.config import PolicyLossConfig

    assert AlgoConfig().get("trloo", None) is None
    assert AlgoConfig().get("gamma") == 1.0
    assert PolicyLossConfig().get("rec", None) is None
    assert PolicyLossConfig().get("loss_mode") == "vanilla"


def test_the_algorithm_node_takes_a_node_of_ours():
    assert composed("ppo_trainer", "+algorithm.trloo.gamma=0.5").algorithm.trloo.gamma == 0.5


@pytest.mark.parametrize("name", ["vanilla", "gpg", "dro", "cispo", "gspo"])
def test_the_losses_that_ours_are_compared_with_are_registered(name):
    assert callable(found(f"{CORE}:get_policy_loss_fn")(name))


def test_gpg_is_reinforce_without_a_ratio():
    from verl.trainer.ppo.core_algos import get_policy_loss_fn
    from verl.workers.config import ActorConfig

    policy = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    advantages, mask = torch.tensor([[0.5, -3.0]]), torch.ones(1, 2).bool()
    config = ActorConfig(strategy="fsdp", ppo_micro_batch_size_per_gpu=1, rollout_n=1)
    loss, _ = get_policy_loss_fn("gpg")(policy.detach() - 9, policy, advantages, mask, "token-mean", config)
    loss.backward()
    torch.testing.assert_close(policy.grad, -advantages / 2)


@pytest.mark.parametrize(("mode", "matrix", "mask", "wanted"), [
    # The scale is the recipe's, and a row without a token counts among the rows.
    ("seq-mean-token-sum-norm", [[1.0] * 4, [1.0] * 4], [[1, 1, 0, 0], [0, 0, 0, 0]], 2 / 2 / 10),
    ("seq-mean-token-mean", [[1.0, 3.0, 0.0], [5.0, 0.0, 0.0]], [[1, 1, 0], [1, 0, 0]], 3.5),
])  # fmt: skip
def test_losses_are_aggregated_over_the_whole_batch(mode, matrix, mask, wanted):
    numbers = {"dp_size": 1, "batch_num_tokens": 2, "global_batch_size": 2, "loss_scale_factor": 10}
    loss = found(f"{CORE}:agg_loss")(torch.tensor(matrix), torch.tensor(mask), mode, **numbers)
    assert loss.item() == pytest.approx(wanted)


def test_rollout_correction_knows_the_presets_statistics():
    assert {"seq_mean_k1", "seq_max_k2"} <= found(f"{CORRECTION}:SUPPORTED_ROLLOUT_RS_OPTIONS")
    assert found("verl.trainer.config.algorithm:RolloutCorrectionConfig")().bypass_mode is False


def test_rollout_correction_refuses_an_empty_mask():
    correct = found(f"{CORRECTION}:compute_rollout_correction_and_rejection_mask")
    with pytest.raises(ValueError, match="at least one valid token"):
        correct(torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 2))


def test_micro_batch_metrics_must_be_alike_on_every_rank():
    from verl.utils.metric import AggregationType, Metric

    two, one = Metric(AggregationType.MEAN, 1.0), Metric(AggregationType.MEAN, 1.0)
    two.append(2.0)
    with pytest.raises(ValueError, match="same number of values"):
        Metric.aggregate_dp([two, one])
