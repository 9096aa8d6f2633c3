# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from tests.reward.results import correct, failed, turn
from verl_kernel.env.result import EvalStatus
from verl_kernel.errors import ConfigError
from verl_kernel.sampler.rejection import (
    PRSOptions,
    Verdict,
    judge_turns,
    keep_probability,
    prs_metrics,
    uniform,
)

PAPER = PRSOptions()
KEYS = st.text("abc_0", min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("coverage", "expected"), [(0.0, 0.0), (0.3, 0.0), (0.35, 0.5), (0.38, 0.8), (0.4, 1.0), (1.0, 1.0)]
)
def test_paper_equation_9(coverage: float, expected: float) -> None:
    assert keep_probability(turn(correct(1.0, coverage)), PAPER) == pytest.approx(expected)


def test_width_zero_is_a_hard_cut_that_keeps_the_threshold() -> None:
    hard = PRSOptions(width=0.0)
    assert [keep_probability(turn(correct(1.0, c)), hard) for c in (0.2999, 0.3, 0.31)] == [0.0, 1.0, 1.0]


@pytest.mark.parametrize("status", [status.value for status in EvalStatus if status is not EvalStatus.OK])
def test_every_failure_is_kept(status: str) -> None:
    assert keep_probability(turn(failed(status, time_coverage=0.0, correctness=True)), PAPER) is None


def test_unknown_coverage_is_kept() -> None:
    assert keep_probability(turn(correct(1.0, None)), PAPER) is None


def test_key_chooses_the_coverage() -> None:
    result = correct().model_copy(update={"time_coverage": 0.0, "number_coverage": 1.0})
    assert keep_probability(turn(result), PRSOptions(key="number_coverage")) == 1.0
    assert keep_probability(turn(result), PAPER) == 0.0


@given(st.integers(0, 2**40), st.integers(0, 10**6), KEYS, st.integers(0, 9))
def test_draws_repeat_and_stay_in_range(seed: int, step: int, key: str, number: int) -> None:
    assert 0 <= uniform(seed, step, key, number) == uniform(seed, step, key, number) < 1


def test_draws_differ_in_every_part_of_the_counter() -> None:
    draws = {uniform(*c) for c in [(0, 1, "u_0_0", 0), (1, 1, "u_0_0", 0), (0, 2, "u_0_0", 0), (0, 1, "u_1_0", 0)]}
    assert len(draws | {uniform(0, 1, "u_0_0", 1)}) == 5


def test_draws_are_uniform() -> None:
    draws = [uniform(0, step, f"u{row}_0_0", 0) for step in range(40) for row in range(100)]
    assert statistics.mean(draws) == pytest.approx(0.5, abs=0.02)
    assert statistics.pvariance(draws) == pytest.approx(1 / 12, abs=0.004)


def test_share_of_kept_turns_is_the_probability() -> None:
    lazy = [turn(correct(1.0, 0.37))]
    kept = sum(judge_turns(f"u_{i}_0", lazy, 3, PAPER)[0].kept for i in range(4000))
    assert kept / 4000 == pytest.approx(0.7, abs=0.03)


@given(st.lists(st.floats(0, 1), max_size=5), KEYS)
def test_certain_turns_are_certain_and_a_trajectory_is_judged_by_itself(coverages: list[float], key: str) -> None:
    turns = [turn(correct(1.0, c)) for c in coverages]
    verdicts = judge_turns(key, turns, 1, PAPER)
    for coverage, verdict in zip(coverages, verdicts, strict=True):
        assert verdict.kept or coverage < 0.4
        assert not verdict.kept or coverage > 0.3
    assert judge_turns(key, turns[:2], 1, PAPER) == verdicts[:2]


def test_metrics_say_what_was_rejected() -> None:
    rows = [[Verdict(0.0, False), Verdict(None, True)], [Verdict(0.5, False)], [Verdict(1.0, True)], []]
    assert prs_metrics(rows) == {
        "prs/rejected_turns": 2.0,
        "prs/rejected_fraction": 0.5,
        "prs/eligible_fraction": 0.75,
        "prs/rejected_trajectories": 1.0,
        "prs/kept_probability": 0.5,
    }
    assert "prs/kept_probability" not in prs_metrics([[Verdict(None, True)]])
    assert prs_metrics([[]]) == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("threshold", 1.5),
        ("width", -0.1),
        ("key", "coverage"),
        ("seed", 0.5),
        ("poll_interval_s", 0),
        ("enabled", "yes"),
        ("treshold", 0.3),
    ],
)
def test_bad_options_are_refused_by_name(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"trainer.v1.sampler.sampler_kwargs.{key} "):
        PRSOptions.from_node(OmegaConf.create({key: value}))
