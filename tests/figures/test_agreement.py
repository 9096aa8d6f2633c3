# SPDX-License-Identifier: Apache-2.0
"""Agreement of predicted and measured times, by hand and against naive ranks."""

from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.figures.agreement import PredictedOrder, TimeAgreement, factor, ranks

TIMES = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=20)


def test_agreement_by_hand():
    agreement = TimeAgreement.of([(1.0, 1.0), (2.0, 1.5), (3.0, 6.0), (4.0, 5.0)])
    assert agreement.spearman == pytest.approx(0.8)
    assert agreement.median_ratio == pytest.approx(0.9)
    assert agreement.mean_ratio == pytest.approx((1.0 * 2 / 1.5 * 3 / 6 * 4 / 5) ** 0.25)
    assert (agreement.within, agreement.count) == ((0.5, 0.75, 1.0), 4)


def test_one_pair_and_equal_times_have_no_order():
    assert isnan(TimeAgreement.of([(1.0, 2.0)]).spearman)
    assert isnan(TimeAgreement.of([(1.0, 2.0), (1.0, 3.0)]).spearman)


def test_pairs_of_a_task_and_the_regret_of_its_first_choice():
    order = PredictedOrder.of([[(1.0, 10.0), (2.0, 8.0), (3.0, 30.0)], [(1.0, 5.0)], [(1.0, 2.0), (4.0, 2.0)]])
    assert (order.pairs, order.in_order) == (3, 2)
    assert order.regrets == (10.0 / 8.0, 1.0)


@given(TIMES)
def test_ranks_are_places_in_the_sorted_list(values):
    places = [[place + 1 for place, other in enumerate(sorted(values)) if other == value] for value in values]
    assert ranks(values) == [sum(some) / len(some) for some in places]


@given(st.floats(0.01, 100.0), st.floats(0.01, 100.0))
def test_a_factor_has_no_direction(one, other):
    assert factor(one, other) == factor(other, one) >= 1.0
