# SPDX-License-Identifier: Apache-2.0
"""What a start refuses of mismatch correction and of losses for off-policy data, composed as a recipe composes it."""

import re
from operator import itemgetter
from typing import Any

import pytest
from omegaconf import DictConfig
from verl.utils.config import omega_conf_to_dataclass

from tests.loss.cases import OURS, composed
from tests.sentences import refused
from tests.tiers import one_of_each
from verl_kernel.errors import ConfigError
from verl_kernel.loss.config import KernelPolicyLossConfig
from verl_kernel.loss.options import TOPR, ToprLossOptions, TurnCorrectionOptions
from verl_kernel.loss.preflight import CLASS, check_mismatch, check_off_policy

pytestmark = pytest.mark.slow

ACTOR = "actor_rollout_ref.actor"
LOSS = f"{ACTOR}.policy_loss"
CORRECTION = "algorithm.rollout_correction"
IS, RS = f"{CORRECTION}.rollout_is", f"{CORRECTION}.rollout_rs"
BYPASS = f"{CORRECTION}.bypass_mode=true"
SAMPLER = "trainer.v1.sampler.sampler_kwargs"
ROLLOUT = "actor_rollout_ref.rollout"
LOG_PROBS, RAW = f"{ROLLOUT}.calculate_log_probs", f"{ROLLOUT}.logprobs_mode=raw_logprobs"
COLOCATE, SEPARATE = "trainer_mode=colocate_async", "trainer_mode=separate_async"
BYPASSED = (COLOCATE, BYPASS, f"{IS}=null", f"{RS}=null")
COLOCATED = "trainer.v1.colocate_async"
CARRY_OVER = (f"{SAMPLER}.group_filter=refill", "data.gen_batch_size=1", f"{SAMPLER}.group_carry_over=true")
NARROW_BAND = ("num_warmup_batches is 1", "mismatch=stale_tis", f"{SAMPLER}.allow_narrow_band=true")
METHODS = ("topr", "asymre_kl", "opmd", "opmd_k2", "red_weight", "rec_ring", "rec_gspo_is", "rec_one_side_is")
"""Those whose preset has a loss with a node."""
COMPARING = ["rec_one_side_is", "rec_one_side_no_is", "rec_two_side_is", "rec_two_side_no_is", "rec_ring"]
COMPARING += ["rec_gspo_is", "rec_gspo_no_is", "opmd_k2", "opmd_k2_sequence"]


def with_loss(*overrides: str, **loss: Any) -> DictConfig:
    """The recipe whose `policy_loss` is of our class, with these keys."""
    config = composed(*overrides)
    config.actor_rollout_ref.actor.policy_loss.update({"_target_": CLASS} | loss)
    return config


def corrected(config: DictConfig, **correction: Any) -> DictConfig:
    config.algorithm.rollout_correction.update(correction)
    return config


def refusal(config: DictConfig) -> str:
    with pytest.raises(ConfigError) as error:
        check_mismatch(config)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(("overrides", "modes"), [
    (("mismatch=stale_clip",), OURS), (BYPASSED, OURS),
    (("mismatch=mrs",), [mode for mode in OURS if mode != TOPR]),  # fresh samples need no bypass
    ((COLOCATE,), [mode for mode in OURS if mode not in (TOPR, *COMPARING)]),
])  # fmt: skip
def test_losses_pass_where_their_other_policy_is_known(overrides, modes):
    config = with_loss(*overrides)
    for mode in modes:
        config.actor_rollout_ref.actor.policy_loss.loss_mode = mode
        check_mismatch(config)


@pytest.mark.parametrize(("override", "modes", "sentence"), [
    (COLOCATE, COMPARING, "loss_mode is {mode}.*num_warmup_batches.*bypass_mode=true"),
    (COLOCATE, [TOPR], f"{CORRECTION}.bypass_mode is not true.*mismatch=bypass"),
    ("mismatch=mrs", [TOPR], f"{CORRECTION}.bypass_mode is not true.*mismatch=bypass"),
])  # fmt: skip
def test_losses_are_refused_where_that_policy_is_unseen(override, modes, sentence):
    config = with_loss(override)
    for mode in modes:
        config.actor_rollout_ref.actor.policy_loss.loss_mode = mode
        assert re.search(sentence.format(mode=mode), refusal(config))


@pytest.mark.parametrize(("overrides", "sentence"), [
    (("mismatch=mrs", f"{ROLLOUT}.top_p=0.95"), f"{ROLLOUT}.top_p is 0.95.*logprobs_mode=raw_logprobs"),
    (("mismatch=mrs", f"{ROLLOUT}.top_k=20"), f"{ROLLOUT}.top_k is 20.*mismatch=tis"),
    (("mismatch=turn_mrs", f"{ROLLOUT}.top_p=0.95"), f"{ROLLOUT}.top_p is 0.95.*turn_correction"),
    (("mismatch=mrs", RAW, f"{ROLLOUT}.temperature=0.6"), f"{ROLLOUT}.temperature is 0.6.*processed_logprobs"),
])  # fmt: skip
def test_a_narrow_band_on_truncated_sampling_is_refused(overrides, sentence):
    assert re.search(sentence, refusal(with_loss(*overrides)))


@pytest.mark.parametrize("overrides", [
    ("mismatch=mrs", f"{ROLLOUT}.temperature=0.6"),
    ("mismatch=mrs", RAW, f"{ROLLOUT}.top_p=0.95", f"{ROLLOUT}.top_k=20"), ("mismatch=tis", f"{ROLLOUT}.top_p=0.95"),
    ("mismatch=none", f"{ROLLOUT}.top_k=20"),
])  # fmt: skip
def test_truncated_sampling_passes_without_a_narrow_band(overrides):
    check_mismatch(with_loss(*overrides))


def test_a_custom_loss_is_judged_by_its_options():
    check_off_policy(with_loss(COLOCATE, loss_mode="rec_custom", rec={"regulariser": "forward_kl"}))
    with pytest.raises(ConfigError, match="rec_custom.*bypass_mode=true"):
        check_off_policy(with_loss(COLOCATE, loss_mode="rec_custom", rec={"weights": "is"}))


@pytest.mark.parametrize(("mode", "nodes", "key", "remedy"), [
    ("vanilla", {"rec": {"eps_low": 0.1}}, f"{LOSS}.rec is set", "rec_custom"),
    ("rec_ring", {"topr": {"neg_low": 0.1}}, f"{LOSS}.topr is set", "topr_taper"),
    ("topr_taper", {"rec": {"eps_low": 0.1}}, f"{LOSS}.rec is set", "remove the node"),
    ("rec_ring", {"turn_correction": {"low": 0.9}}, f"{LOSS}.turn_correction is set", "turn_corrected"),
    ("rec_ring", {"rec": {"eps_low": 0.1}, "_target_": "verl.workers.config.PolicyLossConfig"}, "_target_", CLASS),
    ("rec_ring", {"rec": {"clip": "none"}}, f"{LOSS}.rec.clip", "rec_custom"),
    ("topr_taper", {"topr": {"ratio": "row"}}, f"{LOSS}.topr.ratio", "geometric"),
])  # fmt: skip
def test_options_for_another_loss_or_class_are_refused(mode, nodes, key, remedy):
    with refused(key, remedy):
        check_mismatch(with_loss("mismatch=stale_clip", loss_mode=mode, **nodes))


def test_empty_nodes_are_no_options():
    check_mismatch(with_loss("mismatch=stale_clip", loss_mode="vanilla", rec={}, topr=None, turn_correction={}))


def test_the_node_reaches_the_loss_as_its_class():
    config = with_loss("mismatch=stale_clip", loss_mode="rec_custom", rec={"clip": "ring", "eps_low": 0.3})
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    assert isinstance(actor.policy_loss, KernelPolicyLossConfig)
    assert dict(actor.policy_loss.rec) == {"clip": "ring", "eps_low": 0.3}
    assert actor.policy_loss.topr == ToprLossOptions.in_recipes()


@pytest.mark.parametrize("overrides", one_of_each(
    [(f"method={method}", f"mismatch={one}") for method in METHODS for one in ("turn_mrs", "turn_tis")],
    key=itemgetter(1),
))  # fmt: skip
def test_two_presets_with_losses_are_refused(overrides):
    method, mismatch = overrides
    ways = ("mismatch=bypass", "method=dr_kernel")
    with refused(*ways):
        check_mismatch(composed(method, mismatch))
    check_mismatch(composed(method, ways[0]))
    check_mismatch(composed(ways[1], mismatch))


def test_another_losses_node_can_be_removed_as_told():
    turns = ("method=dr_kernel", "mismatch=turn_mrs", f"{LOSS}.loss_mode=vanilla")
    assert f"remove the node (on the command line with ~{LOSS}.turn_cor" in refusal(composed(*turns))
    check_mismatch(composed(*turns, f"~{LOSS}.turn_correction"))


@pytest.mark.parametrize(("overrides", "warns"), [
    (("method=opmd_k2", "mismatch=none"), True),
    (("method=opmd_k2", "mismatch=none", f"{LOSS}.loss_mode=opmd_k2_sequence"), True),
    (("method=opmd_k2", "mismatch=none", f"{ACTOR}.ppo_mini_batch_size=2"), False),
    (("method=opmd_k2", "mismatch=none", f"{ACTOR}.ppo_epochs=2"), False),
    (("method=opmd_k2",), False),
    (("method=rec_ring", "mismatch=none"), False),
])  # fmt: skip
def test_a_pull_towards_the_policy_itself_is_warned_of(caplog, overrides, warns):
    check_mismatch(composed(*overrides))
    assert ("pull towards the old policy is 0" in caplog.text) is warns


@pytest.mark.parametrize(("overrides", "key"), [
    ((f"{LOSS}.rec.eps_low_prime=0.1",), "eps_low_prime is 0.1 and eps_low is 0.2"),
    ((f"{LOSS}.rec.eps_high_prime=0",), "eps_high_prime is 0.0 and eps_high is 0.2"),
    ((f"{LOSS}.rec.eps_low=0.7",), "eps_low_prime is 0.6 and eps_low is 0.7"),
    ((f"{LOSS}.rec.eps_low=null", f"{ACTOR}.clip_ratio_low=0.7"), "eps_low_prime is 0.6 and eps_low is 0.7"),
    ((f"{LOSS}.rec.eps_low=null", f"{ACTOR}.clip_ratio_low=1.5"), "clip_ratio_low is 1.5; it must be a number"),
])  # fmt: skip
def test_a_ring_has_its_outer_edge_beyond_its_inner_one(overrides, key):
    owner = ACTOR if key.startswith("clip") else f"{LOSS}.rec"
    assert f"{owner}.{key}" in refusal(composed("method=rec_ring", *overrides))


@pytest.mark.parametrize(("rule", "words"), [
    ({"rollout_rs": "geometric"}, "Invalid rollout_rs option: geometric"),
    ({"rollout_rs_threshold": "abc"}, "could not convert string to float"),
    ({"rollout_rs_threshold": None}, "must be explicitly provided"),
    ({"rollout_rs_threshold": "1.1,2,3"}, "one threshold shared by all options or exactly 2"),
    ({"rollout_rs": ""}, "at least one valid option"),
    ({"rollout_is": "token", "rollout_is_threshold": -1.0}, "must be positive"),
    ({"rollout_is": "token", "rollout_is_threshold": "2_1"}, "must be <= upper bound"),
])  # fmt: skip
def test_a_rule_that_verl_refuses_is_refused_first(rule, words):
    with refused(words, start="algorithm.rollout_correction.rollout_"):
        check_mismatch(corrected(composed("method=dr_kernel", "mismatch=mrs"), **rule))


CONTRADICTIONS = one_of_each(
    [
        (("mismatch=tis", f"{LOG_PROBS}=false"), ("rollout_is", f"{LOG_PROBS}=true")),
        (("mismatch=mrs", f"{LOG_PROBS}=false"), ("rollout_rs", "mismatch=none")),
        (("mismatch=stale_clip", f"{LOG_PROBS}=false"), ("bypass_mode", f"{LOG_PROBS}=true")),
        (("mismatch=mrs", f"{LOSS}.loss_mode=turn_corrected"), ("rollout_is", "token")),
        (("mismatch=tis", f"{LOSS}.loss_mode=turn_corrected"), ("rollout_is_threshold", "1.0e9")),
        (("mismatch=turn_mrs", f"{LOSS}.loss_mode=vanilla"), (f"{LOSS}.turn_correction", "turn_corrected")),
        (("mismatch=turn_mrs", "kernelgym.max_turns=1"), ("kernelgym.max_turns", "trajectory")),
        (("mismatch=turn_mrs", f"{LOSS}.turn_correction.low=2"), ("turn_correction.low", "no ratio")),
        (("mismatch=turn_mrs", f"+{LOSS}.turn_correction.tow=2"), ("turn_correction.tow", "known keys are")),
        (("mismatch=turn_mrs", f"{IS}_batch_normalize=true"), ("rollout_is_batch_normalize", "false")),
        (("mismatch=mrs", BYPASS), ("bypass_mode", "mismatch=none")),
        (("mismatch=tis", BYPASS), ("bypass_mode", "mismatch=none")),
        (("mismatch=turn_mrs", BYPASS), ("bypass_mode", "false")),
        (("mismatch=turn_mrs", f"{IS}_threshold=4.8e8"), ("threshold", "1.0e9")),
        (("mismatch=turn_mrs", f"{IS}_threshold=0.5_5.0"), ("threshold", "1.0e9")),
        (("mismatch=turn_mrs", f"{RS}=token_k2", f"{RS}_threshold=2.0"), ("rollout_rs", "veto")),
        (("mismatch=turn_mrs", f"{RS}=token_k2"), ("rollout_rs_threshold", "mismatch=mrs")),
        # A band made for the gap between two engines, and samples of older weights.
        ((COLOCATE, "mismatch=mrs"), (f"{COLOCATED}.", *NARROW_BAND)),
        ((COLOCATE, "mismatch=mrs_tis"), NARROW_BAND),
        ((COLOCATE, "mismatch=turn_mrs"), NARROW_BAND),
        ((SEPARATE, "mismatch=mrs"), ("trainer.v1.separate_async.", *NARROW_BAND)),
        ((*CARRY_OVER, "mismatch=mrs"), (f"{SAMPLER}.group_carry_over is true",)),
    ],
    key=itemgetter(1),
)


@pytest.mark.parametrize("case", CONTRADICTIONS, ids=str)
def test_a_contradiction_is_refused_by_key_and_remedy(case):
    overrides, words = case
    with refused(*words):
        check_mismatch(composed(*overrides))


def test_two_sets_of_correction_weights_are_refused():
    config = corrected(with_loss("mismatch=stale_clip", loss_mode=TOPR), rollout_is="token")
    assert re.search("bypass_mode is true.*rollout_is", refusal(config))


PASSES = one_of_each(
    [
        *[(f"mismatch={preset}",) for preset in ("none", "mrs", "tis", "mrs_tis", "turn_mrs", "turn_tis")],
        # verl cuts log-ratios at 20, and exp(20) is 4.85e8.
        ("mismatch=turn_mrs", f"{IS}_threshold=4.9e8"), ("mismatch=none", BYPASS), ("trainer_mode=sync",), (COLOCATE,),
        (SEPARATE,), (*CARRY_OVER, "mismatch=stale_tis"),
        *[(COLOCATE, f"mismatch={preset}") for preset in ("none", "tis", "turn_tis", "stale_tis", "stale_clip")],
        *[("trainer_mode=sync", f"mismatch={preset}") for preset in ("mrs", "turn_mrs")],
        *[(COLOCATE, f"mismatch={one}", f"{SAMPLER}.allow_narrow_band=true") for one in ("mrs", "turn_mrs")],
        *[(COLOCATE, f"mismatch={one}", f"{COLOCATED}.num_warmup_batches=0") for one in ("mrs", "turn_mrs")],
    ],
    key=itemgetter(-1),
)  # fmt: skip


@pytest.mark.parametrize("overrides", PASSES, ids=str)
def test_what_fits_together_passes(overrides):
    check_mismatch(composed(*overrides))


@pytest.mark.parametrize(("rules", "thresholds", "narrow"), [
    ("seq_mean_k1", "0.98_1.02", False), ("seq_mean_k1", "0.98_1.002", True), ("seq_mean_k1", "1.005", True),
    ("seq_mean_k1", "1.5", False), ("seq_max_k2,seq_mean_k1", "42.4,0.999_1.001", True),
    ("seq_mean_k3,seq_mean_k1", "1.001", True), ("seq_mean_k3", "0.999", False),
])  # fmt: skip
def test_verls_bounds_are_read_as_verl_reads_them(rules, thresholds, narrow):
    config = composed(COLOCATE, f"{RS}='{rules}'", f"{RS}_threshold='{thresholds}'")
    if narrow:
        assert f"{RS}_threshold holds the bound" in refusal(config)
    else:
        check_mismatch(config)


@pytest.mark.parametrize(("kind", "node", "key", "remedy"), [
    (TurnCorrectionOptions, {"level": "token"}, "level", "turn, trajectory"),
    (TurnCorrectionOptions, {"weights": "sequence"}, "weights", "none, token"),
    (TurnCorrectionOptions, {"veto": 0}, "veto", "above 0"),
    (TurnCorrectionOptions, {"veto": "never"}, "veto", "above 0"),
    (TurnCorrectionOptions, {"veto": 1.5}, "veto", "it must be a number above 0 and below 1,"),
    (TurnCorrectionOptions, {"veto": 0.9, "low": 0.8}, "veto", "is 0.9, not below"),
    (TurnCorrectionOptions, {"cap": None}, "cap", "above 0"),
    (TurnCorrectionOptions, {"cap": -1}, "cap", "above 0"),
    (TurnCorrectionOptions, {"low": 2.0, "high": 1.0}, "low", "no ratio"),
    (TurnCorrectionOptions, {"band": 1}, "band", "known keys are"),
    (ToprLossOptions, {"ratio": "row"}, "ratio", "one of sequence, geometric, token, turn"),
    (ToprLossOptions, {"sign": "row"}, "sign", "one of token, turn"),
    (ToprLossOptions, {"neg_low": 2.0}, "neg_low", "neg_high"),
    (ToprLossOptions, {"pos_high": 0.5}, "pos_low", "pos_high"),
    (ToprLossOptions, {"neg_weight": -1.0}, "neg_weight", "at least 0"),
    (ToprLossOptions, {"low": 1.0}, "low", "known keys are ratio"),
])  # fmt: skip
def test_bad_options_are_refused(kind, node, key, remedy):
    with refused(f"{kind.NODE}.{key} ", remedy, by=ConfigError):
        kind.from_node(node)
