# SPDX-License-Identifier: Apache-2.0
"""Every `method=` composes in every trainer mode, passes the checks of a start and gives verl a gradient."""

import functools
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from tests.advantage.batches import Batch, build
from tests.config.composed import CONFIG, composed
from tests.tiers import one_of_each
from verl_kernel.advantage import GROUPED
from verl_kernel.errors import ConfigError
from verl_kernel.loss import LOSSES
from verl_kernel.loss.options import ToprLossOptions
from verl_kernel.loss.preflight import check_mismatch
from verl_kernel.preflight.checks import (
    ESTIMATOR,
    LOSS,
    REFUSED_PAIRS,
    check_combination,
    check_options,
    check_positive,
)
from verl_kernel.preflight.names import check_registries
from verl_kernel.rollout.preflight import check_adaptive
from verl_kernel.sampler.preflight import check_switches

pytestmark = pytest.mark.slow

METHODS = sorted(path.stem for path in (CONFIG / "method").glob("*.yaml"))
RECIPES = sorted(path.stem for path in CONFIG.glob("*.yaml") if "kernelgym:" in path.read_text())
MODES = ("sync", "colocate_async", "separate_async")
OURS = [name for name in METHODS if name != "dr_kernel" and not name.startswith("ada")]
"""Methods that train by the behaviour policy."""
PAGES = "\n".join(page.read_text() for page in (Path(__file__).parents[2] / "docs").rglob("*.md"))


def quickstart(*overrides: str) -> DictConfig:
    return composed("cpu_quickstart", *overrides)


def check(config: DictConfig) -> None:
    settings = (check_switches, check_mismatch, check_combination, check_adaptive, check_positive)
    for question in (check_registries, check_options, *settings):
        question(config)


_NO_TURNS, _REFILLED = "positive is 'best_turn_speedup', which no rollout reports", "throws away prompts"
UNFIT = {
    **{(method, "cpu_tools"): _NO_TURNS for method in ("ada_est", "ada_seq_balance", "ada_seq_pos")},
    **{(method, "drkernel_8b"): _REFILLED for method in ("ada_seq_balance", "ada_seq_pos")},
}
"""Methods whose recipe lacks what they need: verl's tool loop has no turns, and a refilled batch has no rounds."""


def turned(first: list[str], second: list[str]) -> list[tuple[str, str]]:
    """All pairs: those of the first turn hold each value of both once at least."""
    turns = range(len(second))
    return [(value, second[(place + turn) % len(second)]) for turn in turns for place, value in enumerate(first)]


@pytest.mark.parametrize("pair", one_of_each(turned(METHODS, RECIPES), key=lambda pair: pair[1]), ids="-".join)
def test_a_method_composes_with_every_recipe(pair, monkeypatch):
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    method, recipe = pair
    config = composed(recipe, f"method={method}")
    if (words := UNFIT.get((method, recipe))) is None:
        check(config)
    else:
        with pytest.raises(ConfigError, match=words):
            check(config)
    ours = quickstart(f"method={method}")
    assert OmegaConf.select(config, ESTIMATOR) == OmegaConf.select(ours, ESTIMATOR)
    assert OmegaConf.select(config, LOSS) == OmegaConf.select(ours, LOSS)


@pytest.mark.parametrize("pair", one_of_each(turned(METHODS, MODES), key=lambda pair: pair[1]), ids="-".join)
def test_a_method_composes_in_every_trainer_mode(pair, monkeypatch):
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    method, mode = pair
    config = quickstart(f"method={method}", f"trainer_mode={mode}")
    assert config.trainer.v1.trainer_mode == mode
    check(config)
    if method in OURS:  # the loss gets the sampler's log-probabilities
        rule = config.algorithm.rollout_correction
        assert (rule.bypass_mode, rule.rollout_is, rule.rollout_rs) == (True, None, None)


def test_the_default_sets_nothing():
    plain = OmegaConf.to_container(quickstart())
    assert OmegaConf.to_container(quickstart("method=dr_kernel")) == plain
    assert plain["algorithm"]["adv_estimator"] == "trloo"
    assert plain["algorithm"]["rollout_correction"]["rollout_rs"].startswith("seq_mean_k1")
    assert "stale" not in str(plain["algorithm"]["rollout_correction"])
    stale = quickstart("method=dr_kernel", "trainer_mode=separate_async").algorithm.rollout_correction
    assert stale.rollout_is == "token"
    assert stale.rollout_rs_threshold.startswith("0.98")


@pytest.mark.parametrize("turn", [1, -1])
def test_the_order_of_switches_does_not_matter(turn):
    switches = ("method=topr", "trainer_mode=separate_async")[::turn]
    assert quickstart(*switches).algorithm.rollout_correction.bypass_mode is True


def test_a_named_mismatch_wins_over_the_methods():
    config = quickstart("method=topr", "mismatch=mrs")
    assert config.algorithm.rollout_correction.rollout_rs == "seq_mean_k1,seq_max_k2"
    with pytest.raises(ConfigError, match="bypass_mode is not true.*mismatch=bypass"):
        check(config)
    kept = quickstart("method=asymre", "mismatch=stale_tis", "trainer_mode=colocate_async")
    check(kept)
    assert kept.algorithm.rollout_correction.rollout_is == "token"


def test_a_single_switch_named_beside_a_method_wins():
    config = quickstart("method=topr", "algorithm.adv_estimator=trloo", "algorithm.topr.c=0.5")
    assert (config.algorithm.adv_estimator, config.algorithm.topr.c) == ("trloo", 0.5)
    assert config.actor_rollout_ref.actor.policy_loss.loss_mode == "topr_taper"


@functools.cache
def nodes(method: str) -> tuple[DictConfig, Any]:
    """The nodes that verl hands to estimator and loss."""
    from verl.utils.config import omega_conf_to_dataclass

    config = quickstart(f"method={method}")
    given = (config.algorithm, config.actor_rollout_ref.actor)
    algorithm, actor = (OmegaConf.create(OmegaConf.to_container(node, resolve=True)) for node in given)
    return algorithm, omega_conf_to_dataclass(actor)


def advantages(algorithm: Any) -> torch.Tensor:
    """Of four rollouts of two turns, through verl's own call of the estimator."""
    from verl.protocol import DataProto
    from verl.trainer.ppo.ray_trainer import compute_advantage

    batch = rollouts()
    data = DataProto.from_dict(
        {"token_level_rewards": batch.rewards, "response_mask": batch.mask}, non_tensors={"uid": batch.index}
    )
    return compute_advantage(data, algorithm.adv_estimator, config=algorithm).batch["advantages"]


def rollouts() -> Batch:
    rewards = [[1.0, 3.0], [0.0, 0.5], [0.0, 0.0], [0.0, 0.0]]
    return build(rewards, [[(0, i + 2), (i + 3, i + 5)] for i in range(4)], ["a"] * 4)


def gradient(method: str, drift: float = 0.1) -> torch.Tensor:
    """Of the loss by log pi, on the same rollouts."""
    from verl.trainer.ppo.core_algos import get_policy_loss_fn

    batch = rollouts()
    algorithm, actor = nodes(method)
    worth = advantages(algorithm)
    old = torch.full_like(worth, -2.0)
    noise = torch.from_numpy(np.random.default_rng(0).normal(0, drift, old.shape)).float()
    policy = (old + noise).requires_grad_()
    loss, _ = get_policy_loss_fn(actor.policy_loss.loss_mode)(
        old_log_prob=old, log_prob=policy, advantages=worth, response_mask=batch.mask.bool(),
        loss_agg_mode=actor.loss_agg_mode, config=actor,
    )  # fmt: skip
    loss.backward()
    assert policy.grad is not None
    assert (policy.grad[batch.mask == 0] == 0).all()
    return policy.grad


@pytest.mark.parametrize("method", ["dr_kernel", *OURS])
def test_a_method_learns(method):
    found = gradient(method, drift=1e-4)
    # A token whose likelihood should rise, and one whose likelihood should fall, unless only right answers are learned.
    assert found.isfinite().all()
    assert (found < 0).any()
    assert (found > 0).any() == (method != "rsft")


@pytest.mark.parametrize("method", METHODS)
def test_verl_can_type_the_algorithm_node_and_our_nodes_in_it(method):
    from verl.utils.config import omega_conf_to_dataclass

    from verl_kernel.plugin.algorithm import KernelAlgoConfig

    node, _ = nodes(method)
    typed = omega_conf_to_dataclass(node)
    assert isinstance(typed, KernelAlgoConfig)
    assert typed.trloo == OmegaConf.to_container(node.trloo)
    if method in OURS:
        torch.testing.assert_close(advantages(typed), advantages(node), rtol=0, atol=0)


def test_asymre_is_the_same_as_estimator_and_as_loss():
    torch.testing.assert_close(gradient("asymre"), gradient("asymre_kl"), atol=1e-7, rtol=1e-5)


def test_clipping_does_nothing_where_policies_agree():
    plain = gradient("opmd", drift=0.0) * 2
    sided = (f"rec_{sides}_side_{weights}" for sides in ("one", "two") for weights in ("is", "no_is"))
    for method in ("opmd_k2", "opmd_k2_sequence", *sided, "rec_ring"):
        torch.testing.assert_close(gradient(method, drift=0.0), plain, atol=1e-7, rtol=1e-5)


def test_toprs_ratio_and_constant_are_the_papers_by_default():
    assert quickstart("method=topr").algorithm.topr.c == 0.0
    assert nodes("topr")[1].policy_loss.topr["ratio"] == ToprLossOptions().ratio == "sequence"
    named = quickstart("method=topr", "actor_rollout_ref.actor.policy_loss.topr.ratio=geometric")
    check(named)
    assert named.actor_rollout_ref.actor.policy_loss.topr.ratio == "geometric"


@pytest.mark.parametrize(("estimator", "loss"), REFUSED_PAIRS)
def test_an_estimator_and_a_loss_may_contradict_each_other(estimator, loss):
    config = quickstart()
    OmegaConf.update(config, ESTIMATOR, estimator)
    OmegaConf.update(config, LOSS, loss)
    with pytest.raises(ConfigError, match=rf"{estimator}.*{loss}.*rec_group_mean, or .*gpg"):
        check_combination(config)


@pytest.mark.parametrize("estimator", [*GROUPED, "topr_signed"])
def test_who_compares_rollouts_needs_two_of_them(estimator):
    config = quickstart()
    OmegaConf.update(config, ESTIMATOR, estimator)
    OmegaConf.update(config, "actor_rollout_ref.rollout.n", 1)
    if estimator in GROUPED:
        with pytest.raises(ConfigError, match=r"rollout\.n is 1 .*raise .*, or set algorithm\.trloo\.singleton to raw"):
            check_combination(config)
        OmegaConf.update(config, "algorithm.trloo.singleton", "raw")
    check_combination(config)


def row(method: str) -> str:
    """What a method sets, as a line of the table in the documentation."""
    config = quickstart(f"method={method}")
    actor = config.actor_rollout_ref.actor
    old = "sampler's" if config.algorithm.rollout_correction.bypass_mode else "trainer's"
    cells = (config.algorithm.adv_estimator, actor.policy_loss.loss_mode, old, actor.loss_agg_mode)
    return f"| `{method}` | " + " | ".join(f"`{cell}`" if cell != old else cell for cell in cells) + " |"


@pytest.mark.parametrize("method", METHODS)
def test_the_table_of_methods_is_true(method):
    assert row(method) in PAGES


def verdicts(loss: str) -> list[str]:
    """Whether a loss starts with and without the sampler's log-probabilities, in sync and on older samples."""
    found = []
    for mode, mismatch in itertools.product(("sync", "colocate_async"), ("bypass", "none")):
        config = quickstart(f"trainer_mode={mode}", f"mismatch={mismatch}")
        OmegaConf.update(config, LOSS, loss)
        try:
            check_mismatch(config)
        except ConfigError:
            found.append("refused")
        else:
            found.append("yes")
    return found


LINES = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGES.splitlines() if line.startswith("| `")]


@pytest.mark.parametrize("loss", [*(name for name in LOSSES if name != "turn_corrected"), "vanilla", "gpg"])
def test_the_table_of_losses_and_modes_is_true(loss):
    assert [one[1:] for one in LINES if f"`{loss}`" in one[0] and set(one[1:]) <= {"yes", "refused"}] == [
        verdicts(loss)
    ]
