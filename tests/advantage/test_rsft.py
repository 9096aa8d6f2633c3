# SPDX-License-Identifier: Apache-2.0
"""`rsft`: which turns are learned from, and that under `gpg` the gradient is that of their log-likelihood."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from torch.nn.functional import cross_entropy
from verl.protocol import DataProto
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.trainer.ppo.ray_trainer import compute_advantage

from tests.advantage.batches import Batch, batches, build, estimate, masked, per_turn, rejected_batches
from tests.loss.cases import actor
from verl_kernel.advantage.turns import ZERO_REWARD
from verl_kernel.loss.optimizer import SkippingAdamW

WORDS, SCALE = 7, 10
SWITCHES: tuple[dict[str, Any], ...] = (
    {},
    {"gamma": 0.0},
    {"shaping": "difference"},
    {"baseline": "padded", "count_rejected": False},
    {"singleton": "raw", "mask_void_turn": True},
)


@given(drawn=rejected_batches(), switches=st.sampled_from(SWITCHES))
def test_every_turn_matches_the_naive_rule(drawn: tuple[Batch, list[list[bool]]], switches: dict[str, Any]) -> None:
    batch, kept = drawn
    right = [[float(reward > ZERO_REWARD) for reward in row] for row in batch.turn_rewards]
    found = estimate("rsft", batch, **switches)
    assert per_turn(batch, found) == masked(right, kept)
    assert (found[batch.mask == 0] == 0).all()


class Policy(torch.nn.Module):
    """Logits of each token by the token before it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(WORDS, WORDS, dtype=torch.float64)

    def log_probs(self, tokens: torch.Tensor) -> torch.Tensor:
        before = torch.cat([torch.zeros_like(tokens[:, :1]), tokens[:, :-1]], dim=1)
        return self.table(before).log_softmax(-1).gather(-1, tokens[..., None]).squeeze(-1)


def rsft_loss(policy: Policy, tokens: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Through verl's own call of the estimator and its own loss, with the sampler's log-probabilities far off."""
    config = OmegaConf.create({"adv_estimator": "rsft", "gamma": 1.0, "use_kl_in_reward": False})
    tensors = {"token_level_rewards": batch.rewards, "response_mask": batch.mask}
    data = DataProto.from_dict(tensors, non_tensors={"uid": batch.index})
    worth = compute_advantage(data, "rsft", config=config).batch["advantages"]
    own = actor("gpg")
    own.global_batch_info.update(global_batch_size=len(tokens), dp_size=1, loss_scale_factor=SCALE)
    log_probs = policy.log_probs(tokens)
    old = log_probs.detach() - 3
    loss, _ = get_policy_loss_fn("gpg")(old, log_probs, worth, batch.mask.bool(), "seq-mean-token-sum-norm", own)
    return loss


@given(batch=batches(), seed=st.integers(0, 9))
def test_the_gradient_is_that_of_the_log_likelihood(batch: Batch, seed: int) -> None:
    tokens = torch.randint(WORDS, batch.mask.shape, generator=torch.Generator().manual_seed(seed))
    policy, plain = Policy(), Policy()
    rsft_loss(policy, tokens, batch).backward()
    total = torch.zeros((), dtype=torch.float64)
    for i, row in enumerate(batch.spans):
        for (start, stop), reward in zip(row, batch.turn_rewards[i], strict=True):
            if reward > ZERO_REWARD:
                before = [int(tokens[i, at - 1]) if at else 0 for at in range(start, stop)]
                total = total + cross_entropy(plain.table.weight[before], tokens[i, start:stop], reduction="sum")
    (total / (len(tokens) * SCALE) + 0 * plain.table.weight.sum()).backward()
    torch.testing.assert_close(policy.table.weight.grad, plain.table.weight.grad)


@pytest.mark.parametrize(("reward", "steps"), [(1.0, 2), (0.0, 1)])
def test_a_batch_without_a_right_answer_is_no_step(reward: float, steps: int) -> None:
    policy = Policy()
    optimizer = SkippingAdamW(policy.parameters(), lr=0.1, weight_decay=0.1)
    tokens = torch.tensor([[1, 2, 3, 4, 5]])
    weights = []
    for earned in (1.0, reward):
        optimizer.zero_grad()
        rsft_loss(policy, tokens, build([[earned]], [[(0, 3)]], ["a"])).backward()
        optimizer.step()
        weights.append(policy.table.weight.detach().clone())
    assert optimizer.skipped == 2 - steps
    assert torch.equal(*weights) == (steps == 1)
