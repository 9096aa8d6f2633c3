# SPDX-License-Identifier: Apache-2.0
"""Pins of verl for the methods beside Dr. Kernel: whose names are free, and which parts of verl their switches name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import verl
from verl.trainer.config.algorithm import RolloutCorrectionConfig
from verl.trainer.ppo.core_algos import agg_loss, get_policy_loss_fn
from verl.workers.config import ActorConfig

from verl_kernel.advantage import ESTIMATORS
from verl_kernel.loss import LOSSES

TRAINER = Path(verl.__file__).parent / "trainer" / "ppo"
CORE = (TRAINER / "core_algos.py").read_text()


@pytest.mark.parametrize("name", [*ESTIMATORS, *LOSSES])
def test_verl_registers_nothing_under_our_names(name: str) -> None:
    assert not re.search(rf"register_\w+\(\s*\"{name}\"", CORE)


def test_the_search_would_find_verls_own_names() -> None:
    assert re.search(r"register_\w+\(\s*\"gpg\"", CORE)


def test_gpg_is_reinforce_without_a_ratio() -> None:
    policy = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    advantages, mask = torch.tensor([[0.5, -3.0]]), torch.ones(1, 2).bool()
    config = ActorConfig(strategy="fsdp", ppo_micro_batch_size_per_gpu=1, rollout_n=1)
    loss, _ = get_policy_loss_fn("gpg")(policy.detach() - 9, policy, advantages, mask, "token-mean", config)
    loss.backward()
    torch.testing.assert_close(policy.grad, -advantages / 2)


def test_a_step_logs_tokens_and_advantages() -> None:
    """What the best of n costs, and the share of tokens that `rsft` accepts."""
    metrics = (TRAINER / "metric_utils.py").read_text()
    assert '"perf/total_num_tokens": total_num_tokens' in metrics
    assert '"critic/advantages/mean": adv_mean' in metrics
    assert "self.logger.log(data=val_metrics, step=self.global_steps)" in (TRAINER / "v1/trainer_base.py").read_text()


def test_a_row_can_count_by_the_mean_of_its_tokens() -> None:
    matrix = torch.tensor([[1.0, 3.0, 0.0], [5.0, 0.0, 0.0]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    assert agg_loss(matrix, mask, "seq-mean-token-mean", loss_scale_factor=100).item() == pytest.approx(3.5)


def test_bypass_is_a_switch_of_the_rollout_correction() -> None:
    assert RolloutCorrectionConfig().bypass_mode is False
