# SPDX-License-Identifier: Apache-2.0
"""Demonstrations of ACES, ReMix and bandits: their recorded data against what the pages say, and shorter runs."""

import json
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from benchmarks.methods import aces_pools as bench
from benchmarks.methods.aces_candidates import POOLS, digest
from benchmarks.methods.bandits import BANDITS, METHODS, OUT, climb
from benchmarks.methods.remix_clusters import ARMS, PARTS, Arm, at_initialisation, train
from verl_kernel.env import check

TABLES = arrays(np.int64, st.tuples(st.integers(1, 8), st.integers(2, 8)), elements=st.integers(0, 1))
REMIX = json.loads((Path(__file__).parents[2] / "data" / "methods" / "remix_clusters.json").read_text())


@pytest.fixture(scope="module")
def data():
    return json.loads((bench.FOLDER / "aces_pools.json").read_text())


def test_the_table_is_of_these_candidates(data):
    assert data["sources"] == digest()
    assert len(POOLS) >= 6
    assert [pool.name for pool in POOLS] == list(data["pools"])
    for pool in POOLS:
        assert list(pool.sources()) == list(data["pools"][pool.name])
        for name, row in data["pools"][pool.name].items():
            assert len(row) == len(data["kinds"]) == 24
            assert name not in pool.right or set(row) == {"ok"}, (pool.name, name)


def test_no_candidate_is_stopped_by_the_gate():
    for pool in POOLS:
        for name, source in pool.sources().items():
            assert not check(source), (pool.name, name)


def test_half_of_the_inputs_by_aces_keep_every_rejection(data):
    for task, matrix in bench.tables_of(data).items():
        assert data["half_of_the_whole_pool"][task] == bench._half(matrix)
        for method in ("ACES-C", "ACES-O"):
            assert bench._half(matrix)[method] == 1.0
            assert data["resampled"][task][method]["12"]["kept_all"] == [1.0, 1.0, 1.0]


@given(TABLES, st.integers(0, 9), st.sampled_from(list(bench.METHODS)))
def test_each_method_orders_all_inputs(matrix, seed, method):
    order = bench.METHODS[method](matrix, np.random.default_rng(seed))
    assert sorted(order) == list(range(matrix.shape[1]))
    assert bench.kept(matrix, order) == 1.0


@given(TABLES)
def test_greedy_cover_stops_losing_rejections(matrix):
    order = bench.by_cover(matrix, np.random.default_rng(0))
    shares = [bench.kept(matrix, order[: size + 1]) for size in range(len(order))]
    assert all(after > before for before, after in pairwise(shares[: shares.index(1.0) + 1]))


def last(arm: Arm, steps: int = 400) -> float:
    return median(train(arm, seed, steps)["curve"][-1]["error"] for seed in range(3))


@pytest.mark.exhaustive
def test_remix_learns_what_its_baselines_cannot():
    ours = last(Arm("remix", selections=2))
    assert ours < 0.5 * min(last(Arm("uniform", selections=2)), last(Arm("uniform", 1, 1, 4, 1)))


def test_each_step_chooses_as_many_as_asked_for():
    for name, arm in ARMS.items():
        for run in REMIX["arms"][name]:
            supports = [point["effective"] for point in run["curve"][1:]]
            if arm.kind in ("remix", "uniform"):
                assert supports == [arm.chosen] * len(supports), name
            else:
                assert min(supports) < 1.5, name
                assert max(supports) < 2.5 < PARTS, name


@pytest.mark.exhaustive
def test_a_softmax_over_wide_inputs_begins_with_one_lora():
    found = at_initialisation(200)
    assert found["median"] < 1.1
    assert found["share_at_most_two"] > 0.84


def test_the_bandits_saved_figures_are_those_of_the_script():
    saved = json.loads((OUT / "bandits.json").read_text())
    assert set(saved["frozen"]["curves"]) == set(saved["redrawn"]["curves"]) == set(METHODS)
    step = max(row["step"] for row in saved["frozen"]["curves"]["topr"]["rec"] if row["step"] <= 200)
    (state,) = climb(METHODS["topr"], list(BANDITS.values()), [step], rate=0.5)
    row = next(row for row in saved["frozen"]["curves"]["topr"]["rec"] if row["step"] == step)
    assert row["pi"] == pytest.approx(state.pi[list(BANDITS).index("rec")].tolist(), rel=1e-3)
