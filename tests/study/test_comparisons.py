# SPDX-License-Identifier: Apache-2.0
"""What a study says of pairs of arms: effects, intervals, verdicts, power, and their figure."""

import math
import statistics
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipes.cpu_study.comparisons import Effect, corrected, effect, effects_table, holm, power_table
from recipes.cpu_study.figure import plot, plot_effects
from recipes.cpu_study.plan import Arm, Comparison, Study
from recipes.cpu_study.student import p_value, power, quantile
from recipes.cpu_study.summary import Interval, curve, ends, interval, last_turn, table
from tests.tiers import thinned

FIGURE = "held_out/correct"
ONE = Comparison("pair", "a against b", ("a", "b"), "correct", 0.1, ("coverage",))
OTHER = Comparison("other", "a against c", ("a", "c"), "decoys", -0.2)
SEEN = {"a": {0: 0.5, 1: 0.6, 2: 0.7, 3: 0.6, 4: 0.6}, "b": dict.fromkeys(range(5), 0.3)}


def rows(arm, values, start=0.25):
    first = [
        {"arm": arm, "seed": seed, "step": 1, "kernel/turn_1/correct_rate": 0.1, "kernel/turn_2/correct_rate": start}
        for seed in values
    ]
    return [*first, *({"arm": arm, "seed": seed, "step": 2, FIGURE: value} for seed, value in values.items())]


DATA = [*rows("a", SEEN["a"]), *rows("b", SEEN["b"], 0.5)]


def seen(mean, half, seeds=5):
    return Effect((mean,) * seeds, Interval(mean, half, seeds), (mean, 0.0), (None, None))


def test_arms_are_paired_by_seed():
    found = effect([*rows("a", {2: 0.5, 0: 0.4, 1: 0.6}), *rows("b", {0: 0.3, 2: 0.1, 7: 0.9})], ("a", "b"), "correct")
    assert found.differences == pytest.approx((0.1, 0.4))
    assert effect(rows("a", {0: 0.4}), ("a", "b"), "correct") is None


def at_temperatures(arm, values):
    """Rows of one arm: a figure by temperature, for each seed."""
    return [
        {"arm": arm, "seed": seed, "step": 2, **{f"held_out/same@{mark}/correct": share for mark, share in own.items()}}
        for seed, own in values.items()
    ]


def test_each_arm_is_compared_at_its_best_temperature():
    cool = at_temperatures("a", {seed: {"1": 0.4, "0.3": 0.7} for seed in range(3)})
    warm = at_temperatures("b", {seed: {"1": 0.6, "0.3": 0.2} for seed in range(3)})
    assert effect([*cool, *warm], ("a", "b"), "same@best/correct").differences == pytest.approx((0.1,) * 3)


def test_a_seeds_temperature_is_chosen_by_the_other_seeds():
    lucky = {0: {"1": 0.5, "0": 0.8}, 1: {"1": 0.5, "0": 0.1}, 2: {"1": 0.5, "0": 0.1}}
    found = effect([*at_temperatures("a", lucky), *at_temperatures("b", lucky)], ("a", "b"), "same@best/correct")
    assert found.ends == (0.5, 0.5)


def test_an_effect_knows_where_both_arms_began_and_ended():
    found = effect(DATA, ("a", "b"), "correct")
    assert (found.ends, found.starts) == (pytest.approx((0.6, 0.3)), (0.25, 0.5))
    first = [row | {"held_out/correct, first turn": 0.5} for row in DATA]
    assert effect(first, ("a", "b"), "correct, first turn").starts == (0.1, 0.1)


@pytest.mark.exhaustive
def test_under_no_effect_the_rule_decides_as_often_as_it_says():
    drawn = np.random.default_rng(0).normal(size=(1000, 5))
    still = rows("b", dict.fromkeys(range(5), 0.0))
    found = [effect([*rows("a", dict(enumerate(one))), *still], ("a", "b"), "correct") for one in drawn]
    decided = sum(one.sign(0.1, one.p) != "not decided" for one in found) / len(found)
    assert 0.03 < decided < 0.07


@pytest.mark.parametrize(("mean", "p", "expected", "said"), [
    (0.2, 0.01, 0.1, "confirmed"), (-0.2, 0.01, -0.1, "confirmed"), (0.2, 0.01, -0.1, "refuted"),
    (-0.2, 0.01, 0.1, "refuted"), (0.2, 0.05, 0.1, "not decided"),
])  # fmt: skip
def test_a_sign_is_decided_by_p_and_by_five_seeds(mean, p, expected, said):
    assert seen(mean, 0.1).sign(expected, p) == said
    assert seen(mean, 0.1, seeds=4).sign(expected, p) == "not decided"


@pytest.mark.parametrize(("low", "high", "expected", "said"), [
    (0.12, 0.25, 0.1, "larger"), (0.05, 0.25, 0.1, "as expected"), (0.02, 0.03, 0.2, "smaller"),
    (-0.02, 0.05, 0.1, "smaller"), (-0.05, -0.01, 0.1, "smaller"), (-0.02, 0.2, 0.1, "not decided"),
])  # fmt: skip
def test_a_size_is_decided_by_where_the_interval_lies(low, high, expected, said):
    middle, half = (low + high) / 2, (high - low) / 2
    assert seen(middle, half).size(expected) == seen(-middle, half).size(-expected) == said
    assert seen(middle, half, seeds=4).size(expected) == "not decided"


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.9]) == pytest.approx([0.04, 0.09, 0.09, 0.9])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_holm_lies_between_p_and_bonferroni(found):
    for p, more in zip(found, holm(found), strict=True):
        assert p <= more <= min(1.0, len(found) * p) or more == pytest.approx(p)
    pairs = sorted(zip(found, holm(found), strict=True))
    assert all(one[1] <= other[1] for one, other in pairwise(pairs))


def test_all_planned_comparisons_are_corrected_for():
    alone = effect(DATA, ("a", "b"), "correct").p
    assert corrected(DATA, [ONE]) == {"pair": alone}
    assert corrected(DATA, [ONE, OTHER]) == {"pair": 2 * alone}
    twin = Comparison("twin", "b against a", ("b", "a"), "correct", -0.1)
    assert corrected(DATA, [ONE, twin, OTHER]) == pytest.approx({"pair": 3 * alone, "twin": 3 * alone})


def test_runs_from_other_weights_are_not_compared():
    own = [row | {"model": "one" if row["seed"] < 3 else "two"} for row in DATA if row["arm"] == "a"]
    other = [row | {"model": "one" if row["seed"] < 2 else "two"} for row in DATA if row["arm"] == "b"]
    assert len(effect([*own, *other], ("a", "b"), "correct").differences) == 4


def test_the_table_names_every_comparison_run_or_not():
    lines = effects_table(DATA, [ONE, OTHER]).splitlines()
    assert lines[0].startswith("1 of 2 comparisons and 2 of 3 arms have been run.")
    assert "Holm for all 2 comp" in lines[0]
    assert lines[4] == (
        "| a against b | correct | 0.250 → 0.600 | 0.500 → 0.300 | +0.300 | +0.212 to +0.388 | 5 | 0.001 | +0.10 "
        "| confirmed | larger |"
    )
    assert lines[5] == "|  | coverage | - | - | - | - | 0 | |  | | |"
    assert lines[6] == "| a against c | decoys | - | - | - | - | 0 | | -0.20 | not run | |"


def test_a_single_seed_has_an_effect_and_no_verdict():
    table = effects_table([*rows("a", {0: 0.5}), *rows("b", {0: 0.25})], [ONE])
    assert "| +0.250 | - | 1 |  | +0.10 | not decided | not decided |" in table


def test_power_is_computed_at_the_strictest_level_of_holm():
    pair = Comparison("pair", "One against two", ("one", "two"), "new_chain/correct", 0.1, deviation=0.05)
    unknown = replace(pair, name="unknown", deviation=None)
    study = Study("r", 2, tuple(range(8)), 6.0, (Arm("one", "One"), Arm("two", "Two")), (pair, unknown))
    first, second = power_table(study).splitlines()[2:]
    assert first == (
        f"| One against two | new_chain/correct | +0.10 | 0.050 | 8 | 0.0250 | {power(0.1, 0.05, 8, 0.025):.2f} |"
    )
    assert second.endswith("| - | 8 | 0.0250 | - |")
    assert power_table(replace(study, seeds=(0,))).splitlines()[2].endswith("| - | 1 | 0.0250 | - |")


def test_a_side_may_be_the_mean_of_arms():
    found = effect([*DATA, *rows("c", {0: 0.1, 1: 0.4})], ("a", "b + c"), "correct")
    assert found.differences == pytest.approx((0.5 - 0.2, 0.6 - 0.35))


@pytest.mark.parametrize(("freedom", "value"), [(1, 12.7062), (4, 2.7764), (7, 2.3646), (30, 2.0423)])
def test_quantiles(freedom, value):
    assert quantile(freedom) == pytest.approx(value, abs=1e-4)


def test_p_of_values():
    # A t of 2 * sqrt(3) with two degrees of freedom, whose distribution has a closed form.
    assert p_value([1.0, 2.0, 3.0]) == pytest.approx(1 - 2 * math.sqrt(3) / math.sqrt(2 + 12))
    assert p_value([0.3]) == 1.0
    assert p_value([0.0, 0.0]) == 1.0
    assert p_value([0.1, 0.1]) == 0.0


@pytest.mark.parametrize(
    "experiment", thinned([(0.06, 8, 0.05), (-0.1, 8, 0.05 / 12), (0.0, 5, 0.05), (1 / 6, 8, 0.05 / 18)], 4)
)
def test_power_is_the_share_of_experiments_that_find_the_effect(experiment):
    effect, seeds, level = experiment
    drawn = np.random.default_rng(0).normal(effect, 0.05, size=(4000, seeds))
    found = np.mean([p_value(list(row)) < level for row in drawn])
    assert power(effect, 0.05, seeds, level) == pytest.approx(found, abs=0.02)


DRAWN = [*rows("a", {0: 0.4, 1: 0.6, 2: 0.5}), *rows("b", {0: 0.3, 1: 0.3, 2: 0.3})]


def test_an_effect_is_drawn_with_seeds_and_interval(tmp_path, monkeypatch):
    drawn = []
    from matplotlib import pyplot

    monkeypatch.setattr(pyplot, "close", drawn.append)
    plot_effects(DRAWN, [ONE], tmp_path / "effects.png", "r")
    assert (tmp_path / "effects.png").stat().st_size > 1000
    (axis,) = drawn[0].axes
    lines = {line.get_label(): [round(float(x), 3) for x in line.get_xdata()] for line in axis.lines}
    assert (lines["a seed"], lines["expected"], lines["mean"]) == ([0.1, 0.3, 0.2], [0.1], [0.2])
    assert lines["95 % interval"] == [-0.048, 0.448]
    assert [text.get_text() for text in axis.get_yticklabels()] == ["a against b: correct"]


def test_without_a_pair_of_runs_there_is_no_figure(tmp_path):
    plot_effects(DRAWN[:4], [ONE], tmp_path / "effects.png", "r")
    assert not (tmp_path / "effects.png").exists()


def logged(arm: str, seed: int, values: list[float]) -> list[dict]:
    return [
        {"arm": arm, "seed": seed, "step": step, "kernel/correct_rate": value, "kernel/hack_rate": 0.375,
         "kernel/turn_1/reward/mean": 1.0, "kernel/turn_2/reward/mean": 2.0}
        for step, value in enumerate(values, 1)
    ]  # fmt: skip


ROWS = [*logged("a", 0, [0.1] * 5 + [0.5] * 5), *logged("a", 1, [0.2] * 5 + [0.9] * 5), *logged("b", 0, [0.3] * 10)]


def test_an_interval_is_students():
    found = interval([1.0, 2.0, 6.0])
    assert found.mean == 3.0
    assert found.half == pytest.approx(4.30265 * statistics.stdev([1.0, 2.0, 6.0]) / math.sqrt(3), rel=1e-5)
    assert interval([2.0]).half is None
    with pytest.raises(ValueError, match="at least one"):
        interval([])


def test_the_last_turn_is_the_highest_that_metrics_name():
    assert last_turn(ROWS[0]) == 2
    assert last_turn({"kernel/turn_10/correct_rate": 0.1, "kernel/turn_9/x": 1}) == 10
    assert last_turn({"kernel/turns/mean": 2.0}) == 0


def test_ends_average_five_steps_of_each_seed():
    first, last, gain = ends(ROWS, "a", "correct")
    assert (first.mean, last.mean, gain.mean) == pytest.approx((0.15, 0.7, 0.55))
    assert gain.half == pytest.approx(12.7062 * 0.15, rel=1e-4)
    assert ends(ROWS, "c", "correct") is None
    assert ends(ROWS, "b", "time coverage") is None


def test_a_seed_has_a_run_of_each_model_that_it_started_from():
    two = [*logged("a", 0, [0.1] * 10), *({**row, "model": "m"} for row in logged("a", 0, [0.3] * 10))]
    first, _, _ = ends(two, "a", "correct")
    assert (first.count, first.mean) == (2, pytest.approx(0.2))
    assert "| Arm A | 2 |" in table(two, {"a": "Arm A"})


def test_a_curve_joins_the_seeds_of_a_step():
    assert curve(ROWS, "a", "correct")[1].mean == pytest.approx(0.15)
    assert curve(ROWS, "b", "hack rate")[3].mean == 0.375
    assert curve(ROWS, "b", "reward of a turn")[3].mean == 1.5


def test_the_table_has_a_line_per_arm():
    text = table(ROWS, {"a": "Arm A", "b": "Arm B", "c": "Arm C"})
    assert "| Arm A | 2 | 1.50 → 1.50 ± 0.00 | 0.15 → 0.70 ± " in text
    assert "| Arm B | 1 | 1.50 → 1.50 | 0.30 → 0.30 | - |" in text
    assert "| Arm C | 0 | - |" in text


def test_the_figure_is_drawn(tmp_path):
    plot(ROWS, {"a": "Arm A", "b": "Arm B"}, tmp_path / "study.png", "simulated time")
    assert (tmp_path / "study.png").read_bytes().startswith(b"\x89PNG")
