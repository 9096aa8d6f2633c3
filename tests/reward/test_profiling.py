# SPDX-License-Identifier: Apache-2.0
"""What a verdict earns: by a table of cases, and by the formulas for any options."""

import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.env.test_sizes import task
from tests.reward.results import correct, failed, timed
from verl_kernel.env.result import EvalResult, EvalStatus
from verl_kernel.env.size_verdicts import joined
from verl_kernel.errors import ConfigError, InfraError
from verl_kernel.option_group import option_names
from verl_kernel.reward.options import parse_options
from verl_kernel.reward.profiling import TERMS, ProfilingReward, profiling_reward

TWO_SIZES = task("[256, 257]")
PENALTIES = tuple(key for key in option_names(ProfilingReward) if key.endswith("_penalty"))
VARIANTS = ("sum", "weighted", "milestone")
EQ8 = {"scale": 1.0}
SPEED = {"scale": 1.0, "correct_weight": 0.0, "coverage_weight": 0.0}
MILESTONE, WEIGHTED = SPEED | {"variant": "milestone"}, SPEED | {"variant": "weighted"}
POINT = SPEED | {"speedup": "point"}
SLOW = SPEED | {"slow_penalty": 5.0}
PAID = {"pay_decoys": True, "decoy_penalty": 0.25}
UNKNOWN = {"incorrect_penalty": 0.3, "failure_penalty": 0.7, "pay_decoys": True}
PUBLISHED = SPEED | {
    "variant": "milestone", "decoy_penalty": 1.0, "failure_penalty": 1.0, "uncompiled_penalty": 0.5,
    "incorrect_penalty": 0.3, "slow_penalty": 0.1,
}  # fmt: skip


def but(result: EvalResult, **update: Any) -> EvalResult:
    return result.model_copy(update=update)


DECOY = but(correct(2.0, 0.0), decoy_kernel=True)
CONSTANT = correct(1.6, 1.0, task_flags=("constant_output",))
SIZED = joined(TWO_SIZES, [correct(4.0, 1.0), correct(1.0, 1.0)])
COUNTED = but(correct(), time_coverage=0.25, number_coverage=0.75)


@pytest.mark.parametrize(("options", "result", "reward"), [
    # Equation 8 of the paper, and the released recipe with half of it.
    (EQ8, correct(2.0, 0.5), 3.5), (EQ8, correct(3.0, 1.0), 5.0), (EQ8, correct(50.0, 1.0), 5.0),
    (EQ8, correct(0.25, 0.0), 1.25), (EQ8, correct(None, None), 1.0), ({}, correct(2.0, 0.5), 1.75),
    (EQ8, COUNTED, 2.25), (EQ8 | {"coverage": "number"}, COUNTED, 2.75),
    ({}, correct(1.0, 1.5), 1.5),  # coverage beyond the whole
    # Of a task of several sizes the geometric mean, or the least.
    ({"only_this_size": 0.5}, correct(hack_flags=("only_this_size",)), 0.75), ({"only_this_size": 0.5}, correct(), 1.5),
    (SPEED, SIZED, 2.0), (SPEED | {"sizes": "worst"}, SIZED, 1.0), (SPEED | {"sizes": "worst"}, correct(2.0), 2.0),
    # What a speedup is worth.
    (SPEED, correct(0.85), 0.85),
    *[(WEIGHTED, correct(speedup), worth) for speedup, worth in ((1.0, 0), (1.01, 1), (9.0, 1))],
    *[
        (MILESTONE, correct(speedup), worth)
        for speedup, worth in ((0.85, 0), (1.0, 0.2), (1.2, 0.4), (1.5, 0.6), (2.0, 0.8), (3.0, 1.0), (9.0, 1.0))
    ],
    # Published milestones with their penalties.
    (PUBLISHED, failed("crash"), -1.0), (PUBLISHED, failed("decoy"), -1.0), (PUBLISHED, failed("compile_error"), -0.5),
    (PUBLISHED, failed("incorrect"), -0.3), (PUBLISHED, correct(0.5), -0.1), (PUBLISHED, correct(1.1), 0.2),
    (PUBLISHED, correct(3.5), 1.0),
    # Verdicts that are `ok` and no more.
    ({}, but(correct(9.0), correctness=False), 0.0), ({}, but(correct(9.0), correctness=None), 0.0),
    (UNKNOWN, but(correct(9.0), correctness=False), -0.3), (UNKNOWN, but(correct(9.0), correctness=None), -0.3),
    # Decoys, and tasks of constant output.
    ({}, DECOY, 0.0), (PAID, DECOY, 1.5), (PAID, failed("decoy"), -0.25),
    (PAID, but(DECOY, status=EvalStatus.DECOY), -0.25), (PAID, but(DECOY, status=EvalStatus.HACKING), -0.25),
    ({}, CONSTANT, 0.0), ({"pay_decoys": True}, CONSTANT, 0.0),
    ({"pay_decoys": True}, but(CONSTANT, decoy_kernel=True), 0.0),
    # Noise does not pay: the lower end counts, unless the point is asked for.
    (SPEED, timed(1.5, 1.1), 1.1), (POINT, timed(1.5, 1.1), 1.5), (MILESTONE, timed(1.6, 1.1), 0.2),
    (WEIGHTED, timed(1.03, 0.99), 0.0), (SPEED, timed(2.0, None), 0.0), (SPEED, correct(2.0, timing_source=None), 0.0),
    (POINT, timed(2.0, None), 2.0),
    # A speedup within the band is none, and only a point below it is slow.
    *[(SLOW, timed(speedup, 1.0), 1.0) for speedup in (0.98, 0.995, 1.005, 1.02)],
    *[(POINT, timed(speedup, 1.0), 1.0) for speedup in (0.98, 0.995, 1.005, 1.02)], (SLOW, timed(1.5, 0.9), 0.9),
    (SLOW, timed(0.97, 0.9), 0.9 - 5.0), ({"slow_penalty": 0.1}, correct(1.0, 0.0), 1.0),
    ({"slow_penalty": 0.1}, correct(math.nextafter(1.0, 0.0), 0.0), 0.9),
])  # fmt: skip
def test_what_a_verdict_earns(options, result, reward):
    assert profiling_reward(result, ProfilingReward(**options)) == pytest.approx(reward)


def test_a_failure_earns_nothing_whatever_was_measured():
    for status in set(EvalStatus) - {EvalStatus.OK, EvalStatus.INFRA_ERROR}:
        earned = profiling_reward(failed(status.value, speedup=9.0, time_coverage=1.0, correctness=True))
        assert math.copysign(1.0, earned) * (1.0 + earned) == 1.0  # a plain zero, without a sign


def test_infra_error_is_never_a_reward():
    with pytest.raises(InfraError, match="not judged") as error:
        profiling_reward(failed("infra_error", correctness=None))
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


@pytest.mark.parametrize("broken", [math.nan, math.inf, -1.0])
def test_broken_measurements_are_our_failure(broken):
    speedups = [correct(speedup=broken), timed(2.0, broken)]
    for result, key in ((correct(coverage=broken), "coverage"), *((speedup, "speedup") for speedup in speedups)):
        with pytest.raises(InfraError, match=key):
            profiling_reward(result)


@pytest.mark.parametrize("roofline", [1e-9, 1e9, math.nan])
def test_the_roofline_earns_nothing(roofline):
    for result in (correct(2.0, 0.5), failed("incorrect")):
        assert profiling_reward(but(result, roofline_ms=roofline)) == profiling_reward(result)


def oracle(result: EvalResult, options: ProfilingReward) -> float:
    """The three formulas written out case by case, for speedups of a simulated clock."""
    status, speedup = result.status.value, result.speedup
    is_right = status == "ok" and result.correctness is True and "constant_output" not in result.task_flags
    if not is_right or (result.decoy_kernel and not options.pay_decoys):
        if status in ("decoy", "hacking") or result.decoy_kernel:
            return -options.decoy_penalty
        uncompiled = status in ("rejected_static", "load_error")
        kind = "incorrect" if status in ("incorrect", "ok") else "uncompiled" if uncompiled else "failure"
        return -float(getattr(options, f"{kind}_penalty"))
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


OPTIONS = st.builds(
    ProfilingReward, variant=st.sampled_from(VARIANTS), scale=st.floats(0.1, 2), correct_weight=st.floats(0.1, 2),
    speedup=st.sampled_from(["low", "point"]), pay_decoys=st.booleans(),
    **{key: st.floats(0, 5) for key in ("speedup_weight", "coverage_weight", *PENALTIES)},
)  # fmt: skip
STATUSES = [EvalStatus(name) for name in "ok incorrect rejected_static load_error crash timeout decoy hacking".split()]
RESULTS = st.builds(
    but, st.builds(correct, st.none() | st.floats(0, 10), st.none() | st.floats(0, 1)),
    status=st.just(EvalStatus.OK) | st.sampled_from(STATUSES),
    correctness=st.just(True) | st.sampled_from([None, False]), decoy_kernel=st.booleans(),
    task_flags=st.sampled_from([(), ("slow_reference",), ("constant_output",)]),
)  # fmt: skip


@given(result=RESULTS, options=OPTIONS, has_low=st.booleans())
def test_every_variant_agrees_with_its_formula(result, options, has_low):
    """On a simulated clock the lower end is the point, whether it is there or not."""
    told = but(result, speedup_low=result.speedup) if has_low else result
    assert profiling_reward(told, options) == pytest.approx(oracle(result, options))


@pytest.mark.parametrize(("given_options", "key", "remedy"), [
    ({"scale": -1}, "scale", ""), ({"speedup_cap": math.inf}, "speedup_cap", ""),
    ({"coverage_weight": "1"}, "coverage_weight", ""), ({"coverage": "bytes"}, "coverage", ""),
    ({"speedup": "mean"}, "speedup", ""), ({"variant": "speedup"}, "variant", "sum, weighted, milestone"),
    ({"variant": "weighted", "speedup_cap": 5.0}, "speedup_cap", "variant=sum"),
    ({"variant": "sum", "margin": 0.1}, "margin", "variant=weighted"), ({"scale": 0}, "scale", "above 0"),
    ({"correct_weight": 0, "speedup_weight": 0, "coverage_weight": 0.0}, "correct_weight", "above 0"),
    ({"decoy_penalty": -1.0}, "decoy_penalty", "at least 0"), ({"slow_penalty": True}, "slow_penalty", "at least 0"),
    ({"terms": {"half": 1.0}}, "terms.half", r"no term that was added \(added: none\)"),
    ({"terms": {"speedup": 1.0}}, "terms.speedup", "no term that was added"),
    ({"terms": [1]}, "terms", r"\(1,\)|\[1\]"), ({"terms": {"half": -1.0}}, "terms", ""),
])  # fmt: skip
def test_contradictions_are_refused_in_one_sentence(given_options, key, remedy):
    with pytest.raises(ConfigError, match=rf"^kernelgym\.reward\.{key} is .*({remedy})") as error:
        ProfilingReward(**given_options)
    assert "\n" not in str(error.value)


def test_a_term_that_is_added_earns_by_its_weight(monkeypatch):
    monkeypatch.setitem(TERMS, "half", lambda result, options: 0.5)
    options = parse_options({"reward": {"terms": {"half": 3.0}}}).reward
    assert hash(options) is not None
    gained = profiling_reward(correct(2.0), options) - profiling_reward(correct(2.0), ProfilingReward())
    assert gained == pytest.approx(0.5 * 3.0 * 0.5)
    assert profiling_reward(failed(), options) == 0.0
    only = ProfilingReward(correct_weight=0.0, speedup_weight=0.0, coverage_weight=0.0, terms={"half": 1.0})
    assert profiling_reward(correct(2.0), only) == 0.25
