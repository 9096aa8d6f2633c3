# SPDX-License-Identifier: Apache-2.0
"""Rejection and weights of turns on synthetic log-probabilities, against the paper's formula turn by turn."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.errors import ConfigError
from verl_kernel.loss.options import TurnCorrectionOptions
from verl_kernel.loss.turn_corrected import correction_metrics, judge

MRS = {"low": 0.999, "high": 1.001, "veto": 1e-4}


def segments(mask: list[int], level: str) -> list[list[int]]:
    """Columns of each turn, or of the row, that the mask leaves."""
    runs: list[list[int]] = []
    for column, on in enumerate(mask):
        if on and (not runs or (level == "turn" and runs[-1][-1] != column - 1)):
            runs.append([column])
        elif on:
            runs[-1].append(column)
    return runs


def naive_weights(logs: list[float], mask: list[int], options: TurnCorrectionOptions) -> list[float]:
    weights = [0.0] * len(mask)
    for columns in segments(mask, options.level):
        tokens = [logs[c] for c in columns]
        w = math.exp(sum(tokens) / len(tokens))
        stays = (options.low or 0) <= w <= (options.high or math.inf)
        stays = stays and all(math.exp(value) >= (options.veto or 0) for value in tokens)
        for c in columns:
            ratios = {"token": math.exp(logs[c]), "geometric": w, "product": math.exp(sum(tokens))}
            weights[c] = stays * (1.0 if options.weights == "none" else min(ratios[options.weights], options.cap))
    return weights


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[list[float]], list[list[int]]]:
    rows, width = draw(st.integers(1, 4)), draw(st.integers(1, 12))
    log = st.sampled_from([0.0, 5e-4, -5e-4, 2e-3, -2e-3, 0.7, -0.7, 9.0, -9.0, -9.5, 12.0, -19.0])
    row = st.lists(log, min_size=width, max_size=width)
    mask = st.lists(st.sampled_from([0, 1, 1]), min_size=width, max_size=width)
    return [draw(row) for _ in range(rows)], [draw(mask) for _ in range(rows)]


@given(
    batch=batches(),
    level=st.sampled_from(["turn", "trajectory"]),
    weights=st.sampled_from(["none", "token", "geometric", "product"]),
    bounds=st.sampled_from([{}, MRS, {"low": 0.5}, {"high": 2.0}, {"veto": 1e-4}]),
)
def test_every_rule_matches_the_formula(
    batch: tuple[list[list[float]], list[list[int]]], level: str, weights: str, bounds: dict[str, float]
) -> None:
    logs, mask = batch
    options = TurnCorrectionOptions(level=level, weights=weights, **bounds)
    verdicts = judge(torch.tensor(logs).exp(), torch.tensor(mask).bool(), options)
    expected = [naive_weights(*row, options) for row in zip(logs, mask, strict=True)]
    torch.testing.assert_close(verdicts.weights, torch.tensor(expected), rtol=1e-4, atol=1e-7)
    assert len(verdicts.kept) == sum(len(segments(row, level)) for row in mask)
    assert all(math.isfinite(value) for value in correction_metrics(verdicts).values())


@pytest.mark.parametrize(("weight", "kept"), [(0.99899, 0), (0.99901, 1), (1.00099, 1), (1.00101, 0)])
def test_the_band_is_on_train_over_rollout(weight: float, kept: int) -> None:
    mask = torch.tensor([[1, 1, 0, 1, 1]]).bool()
    ratios = torch.tensor([[weight, weight, 7.0, 1.0, 1.0]])
    assert judge(ratios, mask, TurnCorrectionOptions(**MRS)).weights.tolist() == [[kept, kept, 0, 1, 1]]


@pytest.mark.parametrize(
    ("ratio", "kept"), [(0.9e-4, False), (1.1e-4, True), (0.9e4, True), (1.1e4, True), (1e8, True)]
)
def test_the_veto_knows_its_sign(ratio: float, kept: bool) -> None:
    verdicts = judge(torch.tensor([[1.0, ratio]]), torch.ones(1, 2).bool(), TurnCorrectionOptions(veto=1e-4))
    assert verdicts.kept.tolist() == [kept]
    assert verdicts.vetoed.tolist() == [not kept]


@pytest.mark.parametrize(("level", "expected"), [("turn", [[0, 0, 0, 1]]), ("trajectory", [[0, 0, 0, 0]])])
def test_a_veto_takes_the_turn_or_the_trajectory(level: str, expected: list[list[int]]) -> None:
    mask = torch.tensor([[1, 1, 0, 1]]).bool()
    options = TurnCorrectionOptions(level=level, veto=1e-4)
    assert judge(torch.tensor([[1.0, 1e-5, 1.0, 1.0]]), mask, options).weights.tolist() == expected


def test_products_of_long_turns_are_cut_before_they_overflow() -> None:
    options = TurnCorrectionOptions(weights="product")
    assert (judge(torch.full((1, 4000), 3.0), torch.ones(1, 4000).bool(), options).weights == 2).all()


@pytest.mark.parametrize("bound", ["low", "high", "veto"])
def test_a_turn_that_reaches_a_bound_stays(bound: str) -> None:
    ratios, mask = torch.full((1, 3), 0.5), torch.ones(1, 3).bool()
    assert judge(ratios, mask, TurnCorrectionOptions(**{bound: 0.5})).kept.tolist() == [True]


@pytest.mark.parametrize(("weights", "expected"), [("token", [0.5, 4.0, 5.0]), ("product", [5.0] * 3)])
def test_weights_are_cut_at_the_cap(weights: str, expected: list[float]) -> None:
    options = TurnCorrectionOptions(weights=weights, cap=5.0)
    found = judge(torch.tensor([[0.5, 4.0, 8.0]]), torch.ones(1, 3).bool(), options).weights
    torch.testing.assert_close(found, torch.tensor([expected]))


def test_metrics_are_counts_and_sums() -> None:
    mask = torch.tensor([[1, 1, 0, 1, 1], [1, 1, 1, 0, 1]]).bool()
    ratios = torch.tensor([[1.0, 1.0, 7.0, 2.0, 2.0], [1e-5, 1.0, 1.0, 7.0, 1.0]])
    verdicts = judge(ratios, mask, TurnCorrectionOptions(high=1.5, veto=1e-4, weights="token"))
    assert correction_metrics(verdicts) == {
        "turn_corr/judged": 4,
        "turn_corr/rejected": 2,
        "turn_corr/vetoed": 1,
        "turn_corr/log_ratio": pytest.approx(math.log(2) + math.log(1e-5) / 3),
        "turn_corr/tokens": 3,
        "turn_corr/weight": 3,
    }


@pytest.mark.parametrize("mask", [torch.zeros(2, 3), torch.zeros(0, 3), torch.zeros(2, 0)])
def test_no_token_is_no_turn(mask: torch.Tensor) -> None:
    verdicts = judge(torch.ones_like(mask), mask.bool(), TurnCorrectionOptions(**MRS))
    assert len(verdicts.kept) == 0
    assert (verdicts.weights == 0).all()
    assert set(correction_metrics(verdicts).values()) == {0.0}


@pytest.mark.parametrize(
    ("node", "key"),
    [
        ({"level": "token"}, "level"),
        ({"weights": "sequence"}, "weights"),
        ({"veto": 0}, "veto"),
        ({"veto": "never"}, "veto"),
        ({"veto": 1.5}, "veto is 1.5; it must be a number above 0 and below 1,"),
        ({"veto": 0.9, "low": 0.8}, "veto is 0.9, not below"),
        ({"cap": None}, "cap"),
        ({"cap": -1}, "cap"),
        ({"low": 2.0, "high": 1.0}, "low"),
        ({"band": 1}, "band"),
    ],
)
def test_bad_options_are_refused_by_name(node: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError, match=f"{TurnCorrectionOptions.NODE}.{key} "):
        TurnCorrectionOptions.from_node(node)
