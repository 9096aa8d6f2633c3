# SPDX-License-Identifier: Apache-2.0
"""The recorded table of ACES' demonstration is of the pools in the repository, and says what the documentation says."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from benchmarks.methods import aces_pools as bench
from benchmarks.methods.aces_candidates import POOLS, digest
from verl_kernel.env import check


@pytest.fixture(scope="module")
def data():
    return json.loads((bench.FOLDER / "aces_pools.json").read_text())


def test_the_table_is_of_these_candidates(data):
    assert data["sources"] == digest()
    assert len(POOLS) >= 6
    assert {pool.name: list(pool.sources()) for pool in POOLS} == {
        task: list(rows) for task, rows in data["pools"].items()
    }
    for pool in POOLS:
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


TABLES = arrays(np.int64, st.tuples(st.integers(1, 8), st.integers(2, 8)), elements=st.integers(0, 1))


@given(TABLES, st.integers(0, 9), st.sampled_from(list(bench.METHODS)))
def test_each_method_orders_all_inputs(matrix, seed, method):
    order = bench.METHODS[method](matrix, np.random.default_rng(seed))
    assert sorted(order) == list(range(matrix.shape[1]))
    assert bench.kept(matrix, order) == 1.0


@given(TABLES)
def test_greedy_cover_stops_losing_rejections(matrix):
    order = bench.by_cover(matrix, np.random.default_rng(0))
    shares = [bench.kept(matrix, order[: size + 1]) for size in range(len(order))]
    until = shares.index(1.0)
    assert all(after > before for before, after in pairwise(shares[: until + 1]))
