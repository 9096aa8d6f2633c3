# SPDX-License-Identifier: Apache-2.0
"""ACES-C and ACES-O against brute force, exact enumeration and the symmetries that they must have."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from verl_kernel.aces import report, scores, weights
from verl_kernel.aces.table import Table
from verl_kernel.aces.weighting import ascend, discrimination, objective
from verl_kernel.errors import DataError

SHAPES = st.tuples(st.integers(1, 7), st.integers(1, 6))
TABLES = SHAPES.flatmap(lambda shape: arrays(np.int8, shape, elements=st.integers(0, 1)))
COLLUDERS = np.array([[1] * 8 + [0] * 8] * 4 + [[0] * 8 + [1] * 8] * 16)
"""4 right candidates that pass 8 good tests, 16 wrong ones that pass 8 bad tests."""


def with_mask(tables):
    return tables.flatmap(lambda table: st.tuples(st.just(table), arrays(bool, table.shape, elements=st.booleans())))


def naive_auc(table, ran, weight, test):
    """Pair by pair, each by the other tests that both were run on."""
    n, m = table.shape
    better = [i for i in range(n) if ran[i, test] and table[i, test]]
    worse = [k for k in range(n) if ran[k, test] and not table[k, test]]
    if not better or not worse:
        return 0.5
    won = 0.0
    for i, k in product(better, worse):
        both = [j for j in range(m) if j != test and ran[i, j] and ran[k, j]]
        gap = sum(weight[j] * (int(table[i, j]) - int(table[k, j])) for j in both)
        won += 0.5 if abs(gap) < 1e-9 else float(gap > 0)
    return won / len(better) / len(worse)


@given(with_mask(TABLES), st.integers(0, 2**32 - 1))
def test_auc_is_that_of_all_pairs_and_quality_follows_from_it(case, seed):
    table, ran = case
    weight = np.random.default_rng(seed).integers(0, 4, table.shape[1]) / 3
    found = discrimination(Table.read(table, ran), weight)
    for test in range(table.shape[1]):
        auc = naive_auc(table, ran, weight, test)
        rate = table[ran[:, test], test].mean() if ran[:, test].any() else 0.0
        assert found.auc[test] == pytest.approx(auc, abs=1e-12)
        assert found.quality[test] == pytest.approx(rate * (1 - rate) * (auc - 0.5), abs=1e-12)


@given(TABLES, st.integers(0, 2**32 - 1), st.sampled_from("co"))
def test_candidates_order_does_not_matter(table, seed, method):
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(table.shape[0]), rng.permutation(table.shape[1])
    plain = weights(table, method)
    moved = weights(table[rows][:, columns], method)
    assert moved.degenerate == plain.degenerate
    room = 1e-4 if method == "o" else 1e-12  # an ascent ends near its limit
    assert moved.values == pytest.approx(plain.values[columns], abs=room)


@given(TABLES, st.integers(0, 1))
def test_a_test_that_separates_nothing_has_no_weight(table, value):
    plain, found = weights(table), weights(np.column_stack([table, np.full(len(table), value)]))
    assert found.degenerate == plain.degenerate
    if not found.degenerate:
        assert found.values[-1] == 0
        assert found.values[:-1] == pytest.approx(plain.values, abs=1e-12)


@given(TABLES, st.data())
def test_a_repeated_test_counts_once(table, data):
    test = data.draw(st.integers(0, table.shape[1] - 1))
    longer = np.column_stack([table, table[:, test]])
    plain, found = weights(table), weights(longer)
    if not found.degenerate:
        total = found.values[-1] + found.values[:-1][(table == table[:, [test]]).all(0)].sum()
        assert total == pytest.approx(plain.values[(table == table[:, [test]]).all(0)].sum(), abs=1e-12)
        assert scores(longer, found) == pytest.approx(scores(table, plain), abs=1e-12)


def test_tests_that_disagree_give_a_uniform_answer():
    for method in "co":
        found = weights(COLLUDERS, method)
        assert found.degenerate
        assert found.values == pytest.approx(np.full(16, 1 / 16))
    assert report(COLLUDERS)["degenerate"] is True
    assert not weights(np.array([[1, 1], [1, 1], [0, 1], [0, 0]])).degenerate


@given(with_mask(TABLES), st.sampled_from("co"))
def test_weights_are_a_point_of_the_simplex_whatever_was_run(case, method):
    table, ran = case
    found = weights(table, method, ran)
    assert found.values.shape == table.shape[1:]
    assert (found.values >= 0).all()
    assert found.values.sum() == pytest.approx(1, abs=1e-12)


@given(TABLES, st.integers(0, 1))
def test_what_stands_in_a_cell_that_never_ran_does_not_matter(table, value):
    ran = np.ones(table.shape, bool)
    ran[0] = False
    hidden = table.copy()
    hidden[0] = value
    assert (weights(hidden, mask=ran).values == weights(table, mask=ran).values).all()
    if len(table) > 1 and not weights(table[1:]).degenerate:
        assert weights(table, mask=ran).values == pytest.approx(weights(table[1:]).values, abs=1e-12)


AGREEING = np.array([[1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0], [1, 1, 1, 1, 0, 0]]).T
AGAINST = np.array([[0, 0, 1, 0, 1, 1]]).T


def test_a_prior_of_zero_takes_a_test_out_of_the_others_scores():
    table = np.hstack([AGREEING, AGAINST])
    found, alone = weights(table, prior=[1, 1, 1, 0]).values, weights(AGREEING).values
    assert found == pytest.approx([*alone, 0], abs=1e-12)
    assert np.abs(weights(table).values - found).max() > 0.01


@pytest.mark.parametrize(("table", "options", "words"), [
    ([1, 0], {}, "candidates by tests"), (np.zeros((0, 3)), {}, "candidates by tests"),
    ([[0.5, 1]], {}, "0 and 1 only"), ([[np.nan, 1]], {}, "write 0 for a crash or NaN"),
    ([[0, 1]], {"mask": [[1]]}, "one flag for each cell"), ([[0, 1]], {"method": "x"}, "must be c or o"),
    ([[0, 1]], {"prior": [1]}, "prior must be one finite number"),
    ([[0, 1]], {"prior": [1, -1]}, "prior must be one finite number"),
    ([[0, 1], [1, 0]], {"method": "o", "init": "best"}, "it must be c, uniform"),
    ([[0, 1], [1, 0]], {"method": "o", "init": [1]}, "init must be one finite number"),
])  # fmt: skip
def test_bad_input_is_named(table, options, words):
    with pytest.raises(DataError, match=words):
        weights(np.asarray(table), **options)


def test_the_report_names_what_kind_of_test_each_is():
    ones = np.ones((6, 1), int)
    found = report(np.hstack([ones, AGREEING, 0 * ones, AGAINST, AGREEING[:, :1]]))
    kinds = [column["kind"] for column in found["columns"]]
    assert kinds == ["all_pass", "agrees", "agrees", "agrees", "all_fail", "backwards", "agrees"]
    assert [column["same_as"] for column in found["columns"]] == [None] * 6 + [1]
    assert found["distinct_tests"] == 6
    assert 1 <= found["effective_tests"] <= 3
    assert found["columns"][1]["weight"] == found["columns"][6]["weight"]
    assert sum(column["weight"] for column in found["columns"]) == pytest.approx(1)


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
