# SPDX-License-Identifier: Apache-2.0
import math
import os
import statistics
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from tests.reward.results import correct, failed, timed, turn
from verl_kernel.env.result import EvalStatus
from verl_kernel.errors import ConfigError
from verl_kernel.reward.record import TurnRecord
from verl_kernel.sampler.options import PRSOptions
from verl_kernel.sampler.rejection import (
    TurnDecision,
    judge_turns,
    keep_probability,
    prs_metrics,
    trajectory_name,
    trajectory_probability,
    uniform,
)

PAPER = PRSOptions()


@pytest.mark.parametrize(
    ("coverage", "expected"), [(0.0, 0.0), (0.3, 0.0), (0.35, 0.5), (0.38, 0.8), (0.4, 1.0), (1.0, 1.0)]
)
def test_paper_equation_9(coverage, expected):
    assert keep_probability(turn(correct(1.0, coverage)), PAPER) == pytest.approx(expected)


def test_width_zero_is_a_hard_cut_that_keeps_the_threshold():
    hard = PRSOptions(width=0.0)
    assert [keep_probability(turn(correct(1.0, c)), hard) for c in (0.2999, 0.3, 0.31)] == [0.0, 1.0, 1.0]


def test_every_failure_is_kept():
    for status in set(EvalStatus) - {EvalStatus.OK}:
        assert keep_probability(turn(failed(status.value, time_coverage=0.0, correctness=True)), PAPER) is None


def test_key_chooses_the_coverage():
    result = correct().model_copy(update={"time_coverage": 0.0, "number_coverage": 1.0})
    assert keep_probability(turn(result), PRSOptions(key="number_coverage")) == 1.0
    assert keep_probability(turn(result), PAPER) == 0.0


def test_draws_differ_in_every_part_of_the_counter():
    draws = {uniform(*c) for c in [(0, 1, "u_0_0", 0), (1, 1, "u_0_0", 0), (0, 2, "u_0_0", 0), (0, 1, "u_1_0", 0)]}
    assert len(draws | {uniform(0, 1, "u_0_0", 1)}) == 5


def test_draws_are_uniform():
    draws = [uniform(0, step, f"u{row}_0_0", 0) for step in range(40) for row in range(100)]
    assert all(0 <= draw < 1 for draw in draws)
    assert statistics.mean(draws) == pytest.approx(0.5, abs=0.02)
    assert statistics.pvariance(draws) == pytest.approx(1 / 12, abs=0.004)


def test_metrics_say_what_was_rejected():
    rows = [
        [TurnDecision(0.0, False), TurnDecision(None, True)],
        [TurnDecision(0.5, False)],
        [TurnDecision(1.0, True)],
        [],
    ]
    assert prs_metrics(rows) == {
        "prs/rejected_turns": 2.0, "prs/rejected_fraction": 0.5, "prs/eligible_fraction": 0.75,
        "prs/rejected_trajectories": 1.0, "prs/kept_probability": 0.5,
    }  # fmt: skip
    assert "prs/kept_probability" not in prs_metrics([[TurnDecision(None, True)]])
    assert prs_metrics([[]]) == {}


@pytest.mark.parametrize(("key", "value"), [
    ("threshold", 1.5), ("width", -0.1), ("key", "coverage"), ("seed", 0.5), ("poll_interval_s", 0), ("enabled", "yes"),
    ("level", "token"), ("speedup_threshold", "fast"), ("speedup_threshold", -1.0), ("group_filter", True),
    ("group_std", 0.1), ("group_refills", 0), ("group_spread", "turn"), ("group_carry_over", 1),
    ("allow_narrow_band", "yes"), ("threshold", 1.0), ("treshold", 0.3),
])  # fmt: skip
def test_bad_options_are_refused_by_name(key, value):
    with pytest.raises(ConfigError, match=f"trainer.v1.sampler.sampler_kwargs.{key} "):
        PRSOptions.from_node(OmegaConf.create({key: value}))


COVERAGES = st.none() | st.just(math.nan) | st.sampled_from([0.0, 0.3, 0.35, 0.4, 1.0]) | st.floats(0, 1)
SPEEDUPS = st.none() | st.just(1.5) | st.floats(0, 4)
TURNS = st.builds(correct, SPEEDUPS, COVERAGES).map(turn)
TURNS |= st.sampled_from(["incorrect", "crash", "decoy"]).map(lambda status: turn(failed(status, time_coverage=0.0)))
OPTIONS = st.builds(
    PRSOptions, level=st.sampled_from(["turn", "trajectory"]), threshold=st.just(0.3) | st.floats(0, 0.9),
    width=st.just(0.0) | st.floats(0.01, 0.5), speedup_threshold=SPEEDUPS, seed=st.integers(0, 99),
)  # fmt: skip


def keeps(options: PRSOptions, coverage: float, speedup: float | None) -> float:
    """Equation 9, case by case."""
    if options.speedup_threshold is not None and speedup is not None and speedup >= options.speedup_threshold:
        return 1.0
    if options.width == 0:
        return 1.0 if coverage >= options.threshold else 0.0
    if coverage <= options.threshold:
        return 0.0
    return min(1.0, (coverage - options.threshold) / options.width)


def oracle(name: str, turns: list[TurnRecord], step: int, options: PRSOptions) -> list[TurnDecision]:
    known = [t.result for t in turns if t.result.status is EvalStatus.OK]
    known = [result for result in known if result.time_coverage is not None and result.time_coverage >= 0]
    if options.level == "trajectory":
        if not known:
            return [TurnDecision(None, True)] * len(turns)
        product = 1.0
        for result in known:
            product *= result.time_coverage or 0.0
        speedups = [result.speedup for result in known if result.speedup is not None]
        probability = keeps(options, product ** (1 / len(known)), max(speedups) if speedups else None)
        return [TurnDecision(probability, uniform(options.seed, step, name, "trajectory") < probability)] * len(turns)
    verdicts = []
    for number, t in enumerate(turns):
        if not any(t.result is result for result in known):
            verdicts.append(TurnDecision(None, True))
            continue
        probability = keeps(options, t.result.time_coverage or 0.0, t.result.speedup)
        verdicts.append(TurnDecision(probability, uniform(options.seed, step, name, number) < probability))
    return verdicts


@given(st.text("abc_0", min_size=1, max_size=6), st.lists(TURNS, max_size=4), st.integers(0, 9), OPTIONS)
def test_verdicts_agree_with_the_rule(name, turns, step, options):
    assert judge_turns(name, turns, step, options) == oracle(name, turns, step, options)


def test_a_fast_kernel_is_kept_whatever_its_coverage():
    fast = PRSOptions(speedup_threshold=1.5)
    assert [keep_probability(turn(correct(s, 0.1)), fast) for s in [None, 1.49, 1.5, 9.0]] == [0.0, 0.0, 1.0, 1.0]
    assert keep_probability(turn(failed("incorrect", speedup=9.0)), fast) is None


def test_noise_buys_no_exemption():
    fast = PRSOptions(speedup_threshold=1.5)
    lucky, sure, unknown = (timed(2.0, low, time_coverage=0.1) for low in (1.4, 1.5, None))
    assert [keep_probability(turn(result), fast) for result in (lucky, sure, unknown)] == [0.0, 1.0, 0.0]
    whole = PRSOptions(level="trajectory", speedup_threshold=1.5)
    assert trajectory_probability([turn(lucky), turn(unknown)], whole) == 0.0
    assert trajectory_probability([turn(lucky), turn(sure)], whole) == 1.0


@given(st.floats(0, 1), st.none() | st.floats(0, 4), OPTIONS)
def test_a_paid_decoy_is_judged_as_a_kernel_of_its_coverage(coverage, speedup, options):
    kernel = correct(speedup, coverage)
    decoy = kernel.model_copy(update={"decoy_kernel": True})
    paid = turn(decoy).model_copy(update={"pay_decoys": True})
    assert keep_probability(paid, options) == keep_probability(turn(kernel), options)
    assert trajectory_probability([paid], options) == trajectory_probability([turn(kernel)], options)
    assert keep_probability(turn(decoy), options) is None


@pytest.mark.parametrize("pay_decoys", [False, True])
def test_on_a_task_of_constant_output_nothing_is_rejected(pay_decoys):
    for decoy in (False, True):
        result = correct(1.0, 0.0, task_flags=("constant_output",)).model_copy(update={"decoy_kernel": decoy})
        assert keep_probability(turn(result).model_copy(update={"pay_decoys": pay_decoys}), PAPER) is None


PINNED = """
from tests.reward.results import correct, turn
from verl_kernel.sampler.options import PRSOptions
from verl_kernel.sampler.rejection import judge_turns, trajectory_name, uniform
name = trajectory_name(bytes(range(16)), "3_0")
turns = [turn(correct(1.0, 0.35))] * 16
kept = "".join(str(int(verdict.is_kept)) for verdict in judge_turns(name, turns, 7, PRSOptions(seed=11)))
print(name, kept, uniform(11, 7, name, 0))
"""


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_draws_are_pinned_by_the_seed_in_every_process(hash_seed):
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, "-c", PINNED], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["be45cb2605bf36bebde684841a28f0fd_3_0", "0001010100000001", "0.7986224152028422"]


def test_names_tell_prompts_and_rollouts_apart():
    names = {trajectory_name(prompt, session) for prompt in (b"a", b"b") for session in ("0_0", "1_0", "10_0")}
    assert len(names) == 6
