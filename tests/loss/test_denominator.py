# SPDX-License-Identifier: Apache-2.0
"""What one token weighs in a step: verl's actor loss as its engine calls it, with the composed recipe's settings."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import DictConfig
from tensordict import TensorDict
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.engine.utils import prepare_micro_batches
from verl.workers.utils.losses import ppo_loss

import verl_kernel.plugin  # noqa: F401  registers the losses
from tests.loss.cases import composed

PROMPT = 2
GLOBAL = 8
SCALE = 1000
# Two turns with feedback of one token between them; rows of different lengths.
MASKS = [[1, 1, 0, 1, 1, 1], [1, 0, 1], [1, 1, 1, 0, 1], [1, 0, 1, 1]] * 2


@pytest.fixture(scope="module")
def recipe():
    return composed()


def nested(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.nested.nested_tensor_from_jagged(
        torch.cat(list(rows)), torch.tensor([0, *torch.tensor([len(row) for row in rows]).cumsum(0)])
    )


def advantages_of(masks: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    """Another advantage for every token, of both signs."""
    return [torch.linspace(-1.0, 2.0, len(mask)) + 0.1 * row for row, mask in enumerate(masks)]


def gradients(
    recipe: DictConfig, masks: Sequence[Sequence[int]] = MASKS, advantages: Sequence[torch.Tensor] | None = None,
    ratio: float | Sequence[torch.Tensor] = 1.0, dp_size: int = 1, **cut: Any,
) -> tuple[float, list[torch.Tensor]]:  # fmt: skip
    """Loss of a step and its gradient by the log-probability of every token, accumulated over micro-batches."""
    config = omega_conf_to_dataclass(recipe.actor_rollout_ref.actor)
    advantages = advantages_of(masks) if advantages is None else advantages
    leaves = [torch.full((PROMPT + len(mask),), -2.0, requires_grad=True) for mask in masks]
    # Scores stand one place before the token they are about.
    ratios = [torch.tensor(ratio)] * len(masks) if isinstance(ratio, float) else ratio
    old = [leaf.detach()[PROMPT - 1 : -1] - one.log() for leaf, one in zip(leaves, ratios, strict=True)]
    lengths = {"input_ids": map(len, leaves), "prompts": [PROMPT] * len(masks), "responses": map(len, masks)}
    columns = {name: nested([torch.zeros(one, dtype=torch.long) for one in each]) for name, each in lengths.items()}
    columns |= {"response_mask": nested([torch.tensor(mask) for mask in masks]), "old_log_probs": nested(old)}
    columns |= {"row": torch.arange(len(masks)), "advantages": nested(advantages)}
    data = TensorDict(columns, batch_size=len(masks))
    cut = cut or {"use_dynamic_bsz": False, "micro_batch_size_per_gpu": 1}
    tokens = sum(map(sum, masks)) * dp_size
    tu.assign_non_tensor(data, global_batch_size=GLOBAL, batch_num_tokens=tokens, dp_size=dp_size, **cut)
    total = 0.0
    for micro in prepare_micro_batches(data)[0]:
        loss, _ = ppo_loss(config, {"log_probs": nested([leaves[row] for row in micro["row"].tolist()])}, micro)
        loss.backward()
        total += loss.item()
    return total, [leaf.grad[PROMPT - 1 : -1] for leaf in leaves]


def without(turn: slice | None, row: int) -> list[list[int]]:
    """Masks after the rejection of a turn, or of a row."""
    masks = [list(mask) for mask in MASKS]
    masks[row][turn or slice(None)] = [0] * len(masks[row][turn or slice(None)])
    return masks


@pytest.mark.parametrize(
    "masks",
    [
        MASKS,
        [*MASKS[:1], *[[0] * len(mask) for mask in MASKS[1:]]],
        without(slice(0, 2), row=0),
        without(slice(3, 6), row=0),
        without(None, row=2),
        [[0] * len(mask) for mask in MASKS],
    ],
    ids=["all", "one row of two turns", "without a first turn", "without a second turn", "without a row", "nothing"],
)
def test_tokens_weigh_their_advantage_over_a_constant(recipe, masks):
    loss, found = gradients(recipe, masks)
    rows = zip(masks, advantages_of(masks), strict=True)
    expected = [-advantages * torch.tensor(mask) / (GLOBAL * SCALE) for mask, advantages in rows]
    assert loss == pytest.approx(sum(map(float, map(torch.sum, expected))), rel=1e-5)
    for grad, one in zip(found, expected, strict=True):
        torch.testing.assert_close(grad, one)


def test_data_parallel_ranks_average_to_one_processs_gradient(recipe):
    expected = gradients(recipe)[1]
    halves = [gradients(recipe, MASKS[own], advantages_of(MASKS)[own], dp_size=2)[1] for own in (slice(4), slice(4, 8))]
    for one, two in zip(expected, [grad / 2 for half in halves for grad in half], strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("mini", [4, 8])
def test_the_constant_is_the_rows_of_a_full_mini_batch(recipe, mini):
    seen: dict[str, Any] = {}

    def update_actor(batch: Any) -> dict[str, Any]:
        seen.update(batch.extra_info)
        return {"metrics": {"mfu": [0.0]}}

    config = recipe.copy()
    config.actor_rollout_ref.actor.ppo_mini_batch_size, config.actor_rollout_ref.rollout.n = mini, 16
    trainer = SimpleNamespace(config=config, actor_rollout_wg=SimpleNamespace(update_actor=update_actor))
    PPOTrainer._update_actor(trainer, SimpleNamespace(extra_info={}), {})
    assert seen["global_batch_size"] == seen["mini_batch_size"] == mini * 16


@pytest.mark.parametrize(("advantage", "ratio", "moves"), [
    (1.0, 1.27, True), (1.0, 1.29, False), (1.0, 0.5, True), (-1.0, 0.81, True), (-1.0, 0.79, False), (-1.0, 1.5, True),
    (-1.0, 2.9, True), (-1.0, 3.1, False),
])  # fmt: skip
def test_the_recipe_clips_at_0_2_and_0_28_and_dual_clips_at_3(recipe, advantage, ratio, moves):
    _, (grad,) = gradients(recipe, [[1]], [torch.tensor([advantage])], ratio)
    assert grad.item() == pytest.approx(-advantage * ratio / (GLOBAL * SCALE) if moves else 0.0)
