# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reward.results import correct, failed, timed
from verl_kernel.env.result import EvalResult, EvalStatus
from verl_kernel.errors import ConfigError, InfraError
from verl_kernel.option_group import option_names
from verl_kernel.reward.options import parse_options
from verl_kernel.reward.profiling import TERMS, ProfilingReward, profiling_reward

PENALTIES = tuple(key for key in option_names(ProfilingReward) if key.endswith("_penalty"))
VARIANTS = ("sum", "weighted", "milestone")
EQ8 = ProfilingReward(scale=1.0)


@pytest.mark.parametrize(
    ("speedup", "coverage", "expected"),
    [(2.0, 0.5, 3.5), (3.0, 1.0, 5.0), (50.0, 1.0, 5.0), (0.25, 0.0, 1.25), (None, None, 1.0)],
)
def test_paper_equation_8(speedup: float | None, coverage: float | None, expected: float) -> None:
    assert profiling_reward(correct(speedup, coverage), EQ8) == expected
    assert profiling_reward(correct(speedup, coverage)) == expected / 2


@pytest.mark.parametrize("status", [s.value for s in EvalStatus if s.value not in ("ok", "infra_error")])
def test_a_failure_earns_nothing_whatever_was_measured(status: str) -> None:
    assert profiling_reward(failed(status, speedup=9.0, time_coverage=1.0, correctness=True)) == 0.0


@pytest.mark.parametrize("gate", [{"correctness": False}, {"correctness": None}, {"decoy_kernel": True}])
def test_an_ok_status_alone_earns_nothing(gate: dict[str, Any]) -> None:
    assert profiling_reward(correct(9.0).model_copy(update=gate)) == 0.0


def test_infra_error_is_never_a_reward() -> None:
    with pytest.raises(InfraError, match="not judged") as error:
        profiling_reward(failed("infra_error", correctness=None))
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


@pytest.mark.parametrize("broken", [math.nan, math.inf, -1.0])
@pytest.mark.parametrize("key", ["speedup", "coverage"])
def test_broken_measurements_are_our_failure(key: str, broken: float) -> None:
    with pytest.raises(InfraError, match=key):
        profiling_reward(correct(**{key: broken}))


@pytest.mark.parametrize("roofline", [1e-9, 1e9, math.nan])
def test_the_roofline_earns_nothing(roofline: float) -> None:
    for result in (correct(2.0, 0.5), failed("incorrect")):
        assert profiling_reward(result.model_copy(update={"roofline_ms": roofline})) == profiling_reward(result)


def test_coverage_by_number() -> None:
    result = correct().model_copy(update={"time_coverage": 0.25, "number_coverage": 0.75})
    assert profiling_reward(result, ProfilingReward(scale=1.0, coverage="number")) == 2.75


@given(speedup=st.floats(0, 100), more=st.floats(0, 100), coverage=st.floats(0, 1))
def test_reward_is_bounded_and_grows_with_speedup(speedup: float, more: float, coverage: float) -> None:
    low, high = (profiling_reward(correct(s, coverage)) for s in (speedup, speedup + more))
    assert 0.5 <= low <= high <= 2.5


@pytest.mark.parametrize(
    ("key", "value"),
    [("scale", -1), ("speedup_cap", math.inf), ("coverage_weight", "1"), ("coverage", "bytes"), ("speedup", "mean")],
)
def test_bad_options_are_refused_by_name(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"kernelgym.reward.{key} "):
        ProfilingReward(**{key: value})


@given(st.data())
def test_paying_decoys_pays_what_the_same_kernel_earns(data: st.DataObject) -> None:
    fields = {
        "status": data.draw(st.sampled_from([one for one in EvalStatus if one is not EvalStatus.INFRA_ERROR])),
        "correctness": data.draw(st.sampled_from([None, False, True])),
        "task_flags": data.draw(st.sampled_from([(), ("constant_output",), ("slow_reference",)])),
    }
    kernel = correct(data.draw(st.floats(0, 4)), data.draw(st.floats(0, 1))).model_copy(update=fields)
    decoy = kernel.model_copy(update={"decoy_kernel": True})
    paying = ProfilingReward(pay_decoys=True)
    assert profiling_reward(kernel, paying) == profiling_reward(kernel, ProfilingReward())
    assert profiling_reward(decoy, paying) == profiling_reward(kernel, paying)
    assert profiling_reward(decoy, ProfilingReward()) == 0.0


def oracle(result: EvalResult, options: ProfilingReward) -> float:
    """The three formulas written out case by case."""
    status, speedup = result.status.value, result.speedup
    if status in ("decoy", "hacking") or result.decoy_kernel:
        return -options.decoy_penalty
    if status != "ok":
        kinds = {"incorrect": "incorrect", "rejected_static": "uncompiled", "load_error": "uncompiled"}
        return -float(getattr(options, f"{kinds.get(status, 'failure')}_penalty"))
    reward = options.correct_weight
    if options.coverage_weight and result.time_coverage is not None:
        reward += options.coverage_weight * result.time_coverage
    if speedup is not None and options.variant == "sum":
        reward += options.speedup_weight * (3.0 if speedup > 3.0 else speedup)
    if speedup is not None and options.variant == "weighted" and speedup >= 1.01:
        reward += options.speedup_weight
    if speedup is not None and options.variant == "milestone":
        reward += options.speedup_weight * 0.2 * sum(speedup >= p for p in (1.0, 1.2, 1.5, 2.0, 3.0))
    reward *= options.scale
    return reward - options.slow_penalty if speedup is not None and speedup < 1 else reward


NUMBERS = st.floats(0, 5)
OPTIONS = st.builds(
    ProfilingReward,
    variant=st.sampled_from(VARIANTS),
    scale=st.floats(0.1, 2),
    correct_weight=st.floats(0.1, 2),
    **{key: NUMBERS for key in ("speedup_weight", "coverage_weight", *PENALTIES)},
)
RESULTS = st.one_of(
    st.builds(correct, st.none() | st.floats(0, 10), st.none() | st.floats(0, 1)),
    st.builds(failed, st.sampled_from(["incorrect", "rejected_static", "load_error", "crash", "timeout", "decoy"])),
    st.builds(lambda: correct(9.0).model_copy(update={"decoy_kernel": True})),
)


@given(result=RESULTS, options=OPTIONS)
def test_every_variant_agrees_with_its_formula(result: EvalResult, options: ProfilingReward) -> None:
    assert profiling_reward(result, options) == pytest.approx(oracle(result, options))


@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        ("sum", [0.85, 1.0, 1.01, 1.2, 1.5, 2.0, 3.0, 3.0]),
        ("weighted", [0, 0, 1, 1, 1, 1, 1, 1]),
        ("milestone", [0, 0.2, 0.2, 0.4, 0.6, 0.8, 1.0, 1.0]),
    ],
)
def test_what_a_speedup_is_worth(variant: str, expected: list[float]) -> None:
    options = ProfilingReward(variant=variant, scale=1.0, correct_weight=0.0, coverage_weight=0.0)
    speedups = [0.85, 1.0, 1.01, 1.2, 1.5, 2.0, 3.0, 9.0]
    assert [profiling_reward(correct(s), options) for s in speedups] == expected


def test_published_milestones_with_their_penalties() -> None:
    published = ProfilingReward(
        variant="milestone",
        scale=1.0,
        correct_weight=0.0,
        coverage_weight=0.0,
        decoy_penalty=1.0,
        failure_penalty=1.0,
        uncompiled_penalty=0.5,
        incorrect_penalty=0.3,
        slow_penalty=0.1,
    )
    worst_first = ["crash", "decoy", "compile_error", "incorrect"]
    assert [profiling_reward(failed(status), published) for status in worst_first] == [-1.0, -1.0, -0.5, -0.3]
    assert [profiling_reward(correct(s), published) for s in (0.5, 1.1, 3.5)] == [-0.1, 0.2, 1.0]


def test_a_decoy_is_paid_only_where_asked_to() -> None:
    decoy = correct(2.0, 0.0).model_copy(update={"decoy_kernel": True})
    paying = ProfilingReward(pay_decoys=True, decoy_penalty=0.25)
    assert profiling_reward(decoy, ProfilingReward()) == 0.0
    assert profiling_reward(decoy, paying) == profiling_reward(correct(2.0, 0.0), ProfilingReward()) > 0
    assert profiling_reward(failed("decoy"), paying) == -0.25


@pytest.mark.parametrize("decoy", [False, True])
def test_a_task_of_constant_output_pays_nobody(decoy: bool) -> None:
    result = correct(1.6, 1.0, task_flags=("constant_output",)).model_copy(update={"decoy_kernel": decoy})
    assert profiling_reward(result, ProfilingReward()) == 0.0
    assert profiling_reward(result, ProfilingReward(pay_decoys=True)) == 0.0


@pytest.mark.parametrize("hack", [{"status": EvalStatus.DECOY}, {"status": EvalStatus.HACKING}])
def test_a_refused_decoy_is_not_paid(hack: dict[str, Any]) -> None:
    paying = ProfilingReward(pay_decoys=True, decoy_penalty=0.25)
    assert profiling_reward(correct(2.0).model_copy(update={"decoy_kernel": True} | hack), paying) == -0.25


@pytest.mark.parametrize("correctness", [False, None])
def test_an_unknown_ok_loses_like_a_wrong_answer(correctness: bool | None) -> None:
    options = ProfilingReward(incorrect_penalty=0.3, failure_penalty=0.7, pay_decoys=True)
    assert profiling_reward(correct(9.0).model_copy(update={"correctness": correctness}), options) == -0.3


SPEED_ALONE = {"scale": 1.0, "correct_weight": 0.0, "coverage_weight": 0.0}
LOW, POINT = ProfilingReward(**SPEED_ALONE), ProfilingReward(**SPEED_ALONE, speedup="point")


def test_noise_does_not_pay() -> None:
    assert profiling_reward(timed(1.5, 1.1), LOW) == 1.1
    assert profiling_reward(timed(1.5, 1.1), POINT) == 1.5
    milestones = ProfilingReward(**SPEED_ALONE, variant="milestone")
    assert profiling_reward(timed(1.6, 1.1), milestones) == 0.2  # 1.6 would reach 1.5
    weighted = ProfilingReward(**SPEED_ALONE, variant="weighted")
    assert profiling_reward(timed(1.03, 0.99), weighted) == 0.0


@pytest.mark.parametrize("speedup", [0.98, 0.995, 1.005, 1.02])
def test_a_speedup_within_the_band_is_none(speedup: float) -> None:
    assert profiling_reward(timed(speedup, 1.0), LOW) == profiling_reward(timed(speedup, 1.0), POINT) == 1.0
    slow = ProfilingReward(**SPEED_ALONE, slow_penalty=5.0)
    assert profiling_reward(timed(speedup, 1.0), slow) == 1.0


def test_only_a_point_below_the_band_is_slow() -> None:
    slow = ProfilingReward(**SPEED_ALONE, slow_penalty=5.0)
    assert profiling_reward(timed(1.5, 0.9), slow) == 0.9
    assert profiling_reward(timed(0.97, 0.9), slow) == pytest.approx(0.9 - 5.0)


def test_a_speedup_without_a_lower_end_earns_nothing() -> None:
    assert profiling_reward(timed(2.0, None), LOW) == 0.0
    assert profiling_reward(correct(2.0, timing_source=None), LOW) == 0.0
    assert profiling_reward(timed(2.0, None), POINT) == 2.0


@given(speedup=st.none() | st.floats(0, 10), coverage=st.none() | st.floats(0, 1), variant=st.sampled_from(VARIANTS))
def test_on_a_simulated_clock_both_speedups_earn_the_same(
    speedup: float | None, coverage: float | None, variant: str
) -> None:
    low, point = (ProfilingReward(variant=variant, slow_penalty=0.1, speedup=name) for name in ("low", "point"))
    old, new = correct(speedup, coverage), correct(speedup, coverage, speedup_low=speedup)
    rewards = [profiling_reward(result, options) for result in (old, new) for options in (low, point)]
    assert rewards == [rewards[0]] * 4
    assert rewards[0] == pytest.approx(oracle(old, low))


@pytest.mark.parametrize("broken", [math.nan, math.inf, -1.0])
def test_a_broken_lower_end_is_our_failure(broken: float) -> None:
    with pytest.raises(InfraError, match="speedup"):
        profiling_reward(timed(2.0, broken))


def test_a_kernel_exactly_as_fast_as_the_reference_is_not_slow() -> None:
    options = ProfilingReward(slow_penalty=0.1)
    assert profiling_reward(correct(1.0, 0.0), options) == 1.0
    assert profiling_reward(correct(math.nextafter(1.0, 0.0), 0.0), options) == pytest.approx(0.9)


def test_coverage_beyond_the_whole_earns_no_more_than_the_whole() -> None:
    assert profiling_reward(correct(1.0, 1.5)) == profiling_reward(correct(1.0, 1.0)) == 1.5


def test_a_loss_without_a_penalty_is_a_plain_zero() -> None:
    assert math.copysign(1.0, profiling_reward(failed("crash"))) == 1.0


@pytest.mark.parametrize(
    ("given_options", "key", "remedy"),
    [
        ({"variant": "speedup"}, "variant", "sum, weighted, milestone"),
        ({"variant": "weighted", "speedup_cap": 5.0}, "speedup_cap", "variant=sum"),
        ({"variant": "sum", "margin": 0.1}, "margin", "variant=weighted"),
        ({"scale": 0}, "scale", "above 0"),
        ({"correct_weight": 0, "speedup_weight": 0, "coverage_weight": 0.0}, "correct_weight", "above 0"),
        ({"decoy_penalty": -1.0}, "decoy_penalty", "at least 0"),
        ({"slow_penalty": True}, "slow_penalty", "at least 0"),
    ],
)
def test_contradictions_are_refused_in_one_sentence(given_options: dict[str, Any], key: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=rf"^kernelgym\.reward\.{key} is .*{remedy}") as error:
        ProfilingReward(**given_options)
    assert "\n" not in str(error.value)


def test_a_term_that_is_added_earns_by_its_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TERMS, "half", lambda result, options: 0.5)
    options = parse_options({"reward": {"terms": {"half": 3.0}}}).reward
    assert hash(options) is not None
    gained = profiling_reward(correct(2.0), options) - profiling_reward(correct(2.0), ProfilingReward())
    assert gained == pytest.approx(0.5 * 3.0 * 0.5)
    assert profiling_reward(failed(), options) == 0.0
    only = ProfilingReward(correct_weight=0.0, speedup_weight=0.0, coverage_weight=0.0, terms={"half": 1.0})
    assert profiling_reward(correct(2.0), only) == 0.25


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"half": 1.0}, r"terms.half is no term that was added \(added: none\)"),
        ({"speedup": 1.0}, "terms.speedup is no term that was added"),
        ([1], r"kernelgym.reward.terms is \(1,\)|kernelgym.reward.terms is \[1\]"),
        ({"half": -1.0}, "kernelgym.reward.terms is"),
    ],
)
def test_weights_of_unknown_terms_are_refused(terms: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ProfilingReward(terms=terms)
