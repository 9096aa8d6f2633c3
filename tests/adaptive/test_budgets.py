# SPDX-License-Identifier: Apache-2.0
"""Budgets of prompts, the counts that they come from, which outlive a run, and contradicting options."""

import math
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.adaptive import AdaOptions, Counts, budgets, run_state
from verl_kernel.errors import ConfigError


@pytest.fixture(autouse=True)
def no_run_afterwards():
    yield
    run_state.begin(AdaOptions())


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.data())
def test_the_total_is_exact_and_harder_prompts_get_no_less(shares, data):
    low = data.draw(st.integers(0, 5))
    high = low + data.draw(st.integers(1, 30))
    total = data.draw(st.integers(low * len(shares), high * len(shares)))
    found = budgets(shares, total, low, high, 0.01)
    assert sum(found) == total
    assert all(low <= budget <= high for budget in found)
    for (p, a), (q, b) in pairwise(zip(shares, found, strict=True)):
        is_tie = abs(p - q) < 1e-9  # their weights may be the same number, and then one of them gets the odd rollout
        assert a >= b - is_tie if p <= q else a <= b + is_tie


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8), st.integers(0, 60))
def test_free_prompts_are_in_proportion_to_the_inverse_root(shares, extra):
    found = budgets(shares, 4 * len(shares) + extra, 1, 40, 0.01)
    free = [(share, budget) for share, budget in zip(shares, found, strict=True) if 1 < budget < 40]
    # A budget is off its real number by less than one rollout.
    levels = [((b - 1) * math.sqrt(p + 0.01), (b + 1) * math.sqrt(p + 0.01)) for p, b in free]
    assert not levels or max(lower for lower, _ in levels) < min(upper for _, upper in levels)


def test_budgets_by_hand():
    # 1 / sqrt(.04) : 1 / sqrt(.25) : 1 / sqrt(1) is 5 : 2 : 1.
    assert budgets([0.03, 0.24, 0.99], 32, 1, 64, 0.01) == [20, 8, 4]
    # The first is held at 16, the others share 16 as 2 : 1.
    assert budgets([0.03, 0.24, 0.99], 32, 1, 16, 0.01) == [16, 11, 5]
    assert budgets([0.03, 0.24, 0.99], 32, 8, 64, 0.01) == [16, 8, 8]
    assert budgets([0.5, 0.5, 0.5], 8, 1, 8, 0.01) == [3, 3, 2]
    assert budgets([], 0, 1, 8, 0.01) == []
    # Nearly equal rates share like equal ones.
    assert sorted(budgets([0.0, 1e-121, 0.0], 2, 0, 1, 0.01)) == [0, 1, 1]


@pytest.mark.parametrize("total", [5, 25])
def test_limits_that_do_not_allow_the_total_are_refused(total):
    with pytest.raises(ConfigError, match="n_min 2 and n_max 8"):
        budgets([0.5, 0.5, 0.5], total, 2, 8, 0.01)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=8), st.floats(0, 1))
def test_counts_are_the_decayed_sums(steps, decay):
    counts = Counts(decay, 1.0, 3.0)
    for hits, misses in steps:
        counts.update({"a": (hits + misses, hits)})
    ages = range(len(steps) - 1, -1, -1)
    hits = sum(step[0] * decay**age for step, age in zip(steps, ages, strict=True))
    total = sum(sum(step) * decay**age for step, age in zip(steps, ages, strict=True))
    assert counts.share("a") == pytest.approx((hits + 1) / (total + 4))
    assert counts.share("never seen") == 0.25


def run(path: Path, first: int, found: list[dict[str, tuple[int, int]]]) -> run_state.RunState:
    """Steps of a run that starts with step `first`."""
    own = run_state.begin(AdaOptions(sampling="est", counts_file=str(path), decay=0.5))
    own.restore(first)
    for step, counts in enumerate(found, first):
        own.count(step, counts)
    return own


def test_a_resumed_run_counts_on_from_its_checkpoint(tmp_path):
    steps = [{"a": (8, 1)}, {"b": (4, 4)}, {"a": (8, 8)}, {"a": (2, 0)}]
    whole = run(tmp_path / "whole.jsonl", 1, steps)
    run(tmp_path / "parts" / "counts.jsonl", 1, steps[:3])
    # The run died in step 3, after the checkpoint of step 2, and half a line was written.
    with (tmp_path / "parts" / "counts.jsonl").open("a") as file:
        file.write('{"step": 4, "fo')
    resumed = run(tmp_path / "parts" / "counts.jsonl", 3, steps[2:])
    assert resumed.counts.tallies == whole.counts.tallies == {"a": (8 / 4 + 8 / 2 + 2, 1 / 4 + 8 / 2), "b": (4.0, 4.0)}
    assert (tmp_path / "parts" / "counts.jsonl").read_text() == (tmp_path / "whole.jsonl").read_text()


def test_a_run_from_the_start_forgets_an_earlier_one(tmp_path):
    run(tmp_path / "counts.jsonl", 1, [{"a": (8, 1)}])
    assert run(tmp_path / "counts.jsonl", 1, []).counts.tallies == {}


def test_without_a_file_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = run_state.begin(AdaOptions(sampling="est"))
    own.count(1, {"a": (8, 1)})
    assert own.counts.tallies == {"a": (8.0, 1.0)}
    assert run_state.current() is own
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("values", "words"), [
    ({"sampling": "seq"}, "algorithm.ada.sampling is 'seq'; it must be one of none, est, seq_pos, seq_balance"),
    ({"max_draws": 4}, "algorithm.ada.max_draws is 4 and round_size is 8"),
    ({"n_min": 9, "n_max": 8}, "algorithm.ada.n_max is 8 and n_min is 9"),
    ({"k_neg": 2, "sampling": "seq_pos"}, "only seq_balance asks for negatives"),
    ({"epsilon": 0.0}, "algorithm.ada.epsilon is 0.0"),
])  # fmt: skip
def test_options_that_cannot_work_are_refused(values, words):
    with pytest.raises(ConfigError, match=words):
        AdaOptions(**values)


def test_a_prompt_must_be_allowed_what_it_is_asked_for():
    with pytest.raises(ConfigError, match="16 rollouts are asked for"):
        AdaOptions(sampling="seq_balance", max_draws=12).exit_rule(16)


def test_what_is_positive_is_named_by_a_key():
    info = {"best_turn_speedup": 1.0, "best_turn_acc": 1.0, "acc": 0.0}
    assert AdaOptions().is_positive(info)
    assert not AdaOptions(positive="acc").is_positive(info)
    assert AdaOptions(positive="best_turn_acc").is_positive(info)
    # A right but slow kernel is negative, so that negatives stay common.
    assert not AdaOptions().is_positive(info | {"best_turn_speedup": 0.9})
    with pytest.raises(ConfigError, match=r"is .speedup., .*must be one of acc, best_turn_acc, best_turn_speedup$"):
        AdaOptions(positive="speedup").is_positive(info)
