# SPDX-License-Identifier: Apache-2.0
"""Orders of programs: all run, each pair both ways round in two forwards, and none waits for one that cannot begin."""

import numpy as np
import pytest

from verl_kernel.env.execution.launches import drawn, turned
from verl_kernel.env.executor.library.grid import RESIDENT


@pytest.mark.parametrize("programs", [1, 2, 37, (1 << 20) + 5])
def test_two_forwards_run_each_pair_both_ways_round(programs):
    order = drawn(np.random.default_rng(3), programs, False)
    np.testing.assert_array_equal(np.sort(order), np.arange(programs))
    np.testing.assert_array_equal(turned(order, False), order[::-1])


def test_orders_are_drawn():
    orders = {tuple(drawn(np.random.default_rng(seed), 5, False)) for seed in range(40)}
    assert len(orders) > 20


@pytest.mark.parametrize("programs", [5, RESIDENT, 3 * RESIDENT + 7])
def test_programs_that_wait_stay_among_those_that_are_resident(programs):
    order = drawn(np.random.default_rng(3), programs, True)
    for some in (order, turned(order, True)):
        np.testing.assert_array_equal(np.sort(some), np.arange(programs))
        np.testing.assert_array_equal(some // RESIDENT, np.arange(programs) // RESIDENT)
    first = order[:RESIDENT]
    assert list(turned(order, True)[: len(first)]) == list(first[::-1]) != list(np.sort(first))
