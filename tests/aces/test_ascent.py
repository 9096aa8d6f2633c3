# SPDX-License-Identifier: Apache-2.0
"""ACES-O: its gradient, its steps, and its starts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.aces import weights
from verl_kernel.aces.table import Table
from verl_kernel.aces.weighting import ascend, objective


def planted(seed, n=24, m=10, masked=False):
    rng = np.random.default_rng(seed)
    right = rng.random(n) < 0.4
    chance = np.where(right[:, None], rng.uniform(0.5, 1, m), rng.uniform(0.1, 0.8, m))
    mask = rng.random((n, m)) < 0.8 if masked else None
    return (rng.random((n, m)) < chance).astype(int), mask


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("temperature", [0.05, 0.5])
def test_the_gradient_is_that_of_finite_differences(masked, temperature):
    table = Table.read(*planted(1, masked=masked))
    weight = np.random.default_rng(2).dirichlet(np.ones(10))
    _, slope = objective(table, weight, temperature)
    for test in range(10):
        step = np.eye(10)[test] * 1e-6
        up, down = (objective(table, weight + sign * step, temperature)[0] for sign in (1, -1))
        assert slope[test] == pytest.approx((up - down) / 2e-6, abs=1e-6)


def naive_objective(table, ran, weight, temperature):
    value = 0.0
    for test in range(table.shape[1]):
        better = [i for i in range(len(table)) if ran[i, test] and table[i, test]]
        worse = [k for k in range(len(table)) if ran[k, test] and not table[k, test]]
        chances = []
        for i in better:
            for k in worse:
                both = ran[i] & ran[k] & (np.arange(len(weight)) != test)
                gap = (weight * (table[i] - table[k]))[both].sum()
                chances.append(1 / (1 + np.exp(-gap / temperature)))
        value += weight[test] * (np.mean(chances) - 0.5 if chances else 0.0)
    return value


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_the_objective_is_that_of_all_pairs(seed, masked):
    table, mask = planted(seed, n=7, m=5, masked=masked)
    ran = np.ones(table.shape, bool) if mask is None else mask
    weight = np.random.default_rng(seed).dirichlet(np.ones(5))
    expected = naive_objective(table, ran, weight, 0.1)
    assert objective(Table.read(table, mask), weight, 0.1)[0] == pytest.approx(expected, abs=1e-9)


@given(st.integers(0, 2**32 - 1), st.sampled_from(["c", "uniform"]))
def test_no_accepted_step_lowers_the_objective(seed, init):
    found = weights(planted(seed, n=12, m=6)[0], "o", init=init)
    assert all(after > before for before, after in zip(found.objective, found.objective[1:], strict=False))
    assert found.values.sum() == pytest.approx(1)
    assert (found.values >= 0).all()


def test_it_climbs_from_every_start_and_the_start_matters():
    table, _ = planted(5)
    ends = {str(init): weights(table, "o", init=init, steps=5) for init in ("c", "uniform", np.eye(10)[0])}
    assert all(end.objective[-1] > end.objective[0] for end in ends.values())
    assert len({round(end.objective[0], 6) for end in ends.values()}) == 3


@pytest.mark.parametrize("table", [[[1], [0]], [[1, 0]], [[1]], [[1, 1], [1, 1]]])
def test_one_test_or_one_candidate_is_no_error(table):
    found = weights(np.array(table), "o")
    assert found.degenerate
    assert found.values.sum() == pytest.approx(1)


def test_a_single_test_keeps_its_weight():
    assert ascend(Table.read([[1], [0]]), np.ones(1)).weights == pytest.approx([1])
