# SPDX-License-Identifier: Apache-2.0
"""The mismatch presets, composed as a recipe composes them and run through verl's own rollout correction."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import DictConfig

from tests.config.composed import composed
from tests.sentences import refused
from verl_kernel.errors import ConfigError

pytestmark = pytest.mark.slow

LOW, HIGH, VETO = 0.999, 1.001, 1e-4
PRESETS = ("none", "mrs", "tis", "mrs_tis", "stale_tis", "stale_clip", "bypass")


def preset(name: str) -> DictConfig:
    return composed("kernel_trloo", f"mismatch={name}").algorithm.rollout_correction


def corrected(rule: DictConfig, log_ratio: torch.Tensor, mask: torch.Tensor) -> tuple[Any, dict[str, float]]:
    """The batch and the metrics that verl computes for log(pi_train / pi_rollout)."""
    from verl.protocol import DataProto
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch

    rollout = torch.full_like(log_ratio, -30.0)
    batch = {"old_log_probs": rollout + log_ratio, "rollout_log_probs": rollout, "response_mask": mask}
    found, metrics = compute_rollout_correction_and_add_to_batch(DataProto.from_dict(batch), rule)
    return found.batch, metrics


def correct(name: str, log_ratio: list[list[float]], mask: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Mask and weights."""
    batch, _ = corrected(preset(name), torch.tensor(log_ratio, dtype=torch.float64), torch.tensor(mask))
    return batch["response_mask"], batch.get("rollout_is_weights", None)


def paper_keeps(log_ratio: list[float], mask: list[int]) -> bool:
    """Dr. Kernel, Eq. 6, of one trajectory."""
    tokens = [value for value, on in zip(log_ratio, mask, strict=True) if on]
    return LOW <= math.exp(sum(tokens) / len(tokens)) <= HIGH and all(math.exp(value) >= VETO for value in tokens)


@pytest.mark.parametrize("name", ["mrs", "mrs_tis"])
@given(data=st.data(), tokens=st.integers(1, 6))
def test_mrs_keeps_what_equation_6_keeps(name, data, tokens):
    rows = data.draw(st.integers(1, 4))
    near = st.floats(-2e-3, 2e-3).filter(lambda x: min(abs(x - math.log(LOW)), abs(x - math.log(HIGH))) > 1e-6)
    shift = [data.draw(near) for _ in range(rows)]
    # Equal and opposite deviations leave the mean alone, and reach past the veto.
    spread = [data.draw(st.sampled_from([0.0, 0.5, 9.0])) for _ in range(rows)]
    signs = [1.0, -1.0] * (tokens // 2) + [0.0] * (tokens % 2)
    log_ratio = [[s + sign * w for sign in signs] for s, w in zip(shift, spread, strict=True)]
    mask = [[1] * tokens for _ in range(rows)]
    kept, _ = correct(name, log_ratio, mask)
    assert kept.bool().any(dim=1).tolist() == [paper_keeps(row, on) for row, on in zip(log_ratio, mask, strict=True)]


@pytest.mark.parametrize(("name", "width"), [("mrs", 1e-3), ("stale_tis", 2e-2)])
def test_the_band_is_on_train_over_rollout(name, width):
    for weight, kept in ((-1.01, False), (-0.99, True), (0.0, True), (0.99, True), (1.01, False)):
        mask, _ = correct(name, [[math.log(1 + weight * width)] * 3], [[1] * 3])
        assert mask.bool().all() == kept


def test_an_uneven_band_shows_the_direction_of_the_ratio():
    rule = preset("mrs")
    rule.rollout_rs, rule.rollout_rs_threshold = "seq_mean_k1", f"{1 / 2.0}_{1 / 0.9}"  # 0.9 <= w <= 2, inverted
    ratio = torch.tensor([[math.log(0.8)], [math.log(1.9)], [math.log(2.1)]])
    batch, _ = corrected(rule, ratio, torch.ones(3, 1))
    assert batch["response_mask"].squeeze(1).tolist() == [0, 1, 0]


@pytest.mark.parametrize(("ratio", "kept"), [(0.9e-4, False), (1.1e-4, True), (0.5, True)])
def test_one_impossible_token_vetoes_its_trajectory(ratio, kept):
    rest = -math.log(ratio) / 9
    log_ratio = [[math.log(ratio), *[rest] * 9], [0.0] * 10]
    mask, _ = correct("mrs", log_ratio, [[1] * 10] * 2)
    assert mask.bool().all(dim=1).tolist() == [kept, True]
    assert mask.bool().any(dim=1).tolist() == [kept, True]


@pytest.mark.parametrize(("log_ratio", "kept"), [(9.2, True), (9.3, False)])
def test_verls_veto_knows_no_sign(log_ratio, kept):
    mask, _ = correct("mrs", [[log_ratio, *[-log_ratio / 9] * 9], [0.0] * 10], [[1] * 10] * 2)
    assert mask.bool().all(dim=1).tolist() == [kept, True]


@pytest.mark.parametrize("name", ["mrs", "mrs_tis"])
def test_a_batch_that_is_rejected_whole_is_counted_and_finite(name):
    batch, metrics = corrected(preset(name), torch.ones(2, 3, dtype=torch.float64), torch.ones(2, 3).long())
    assert not batch["response_mask"].any()
    assert metrics["rollout_corr/rollout_rs_masked_fraction"] == pytest.approx(1)
    assert all(math.isfinite(value) for value in metrics.values())


def test_masked_tokens_have_no_say():
    mask, _ = correct("mrs", [[0.0, -20.0, 0.0, 0.0]], [[1, 0, 1, 1]])
    assert mask.tolist() == [[1, 0, 1, 1]]


def test_an_impossible_token_is_a_mismatch_an_update_is_not():
    # What one update at the quickstart's learning rate does to a trajectory, and a token that the trainer rules out.
    update, broken = [7e-3, -2e-3, 4e-3, 3e-3], [-9.3, 3.1, 3.1, 3.1]
    mask, weights = correct("stale_tis", [update, broken], [[1] * 4] * 2)
    assert mask.bool().any(dim=1).tolist() == [True, False]
    assert weights is not None
    assert weights[0].tolist() == pytest.approx([math.exp(value) for value in update])
    assert not correct("mrs", [update], [[1] * 4])[0].any()


@pytest.mark.parametrize("name", ["tis", "mrs_tis", "stale_tis"])
def test_tis_weights_are_the_ratio_cut_at_two(name):
    _, weights = correct(name, [[math.log(r) for r in [0.25, 1.0, 1.5, 3.0]]], [[1, 1, 1, 1]])
    assert weights is not None
    assert weights[0].tolist() == pytest.approx([0.25, 1.0, 1.5, 2.0])


def test_presets_do_what_their_name_says_and_no_more():
    far = [[1.0, 1.0]]
    for name in PRESETS:
        mask, weights = correct(name, far, [[1, 1]])
        assert mask.bool().any() == (name in ("none", "tis", "stale_clip", "bypass"))
        assert (weights is not None) == ("tis" in name)
        assert preset(name).bypass_mode is (name in ("stale_clip", "bypass"))


def test_stale_clip_clips_the_ratio_to_the_sampler():
    """verl's trainer hands the sampler's log-probabilities on as old ones (tests/compat)."""
    from verl.trainer.ppo.core_algos import get_policy_loss_fn
    from verl.utils.config import omega_conf_to_dataclass

    config = composed("cpu_quickstart", "trainer_mode=colocate_async", "mismatch=stale_clip")
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    rollout = torch.full((1, 2), -3.0)
    policy = (rollout + torch.tensor([[0.1, 0.5]])).requires_grad_()
    loss, _ = get_policy_loss_fn(actor.policy_loss["loss_mode"])(
        old_log_prob=rollout, log_prob=policy, advantages=torch.ones(1, 2), response_mask=torch.ones(1, 2).bool(),
        loss_agg_mode="token-mean", config=actor,
    )  # fmt: skip
    loss.backward()
    assert policy.grad is not None
    assert policy.grad[0, 0] != 0
    assert policy.grad[0, 1] == 0


def test_an_unknown_preset_is_refused_with_the_list():
    with refused(*PRESETS, by=ConfigError):
        composed("kernel_trloo", "mismatch=mis")
