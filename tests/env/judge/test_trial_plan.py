# SPDX-License-Identifier: Apache-2.0
"""Where the special trials of an evaluation lie."""

import hashlib
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.env.judge.trial_plan import TrialPlan


@given(st.binary(min_size=32, max_size=32), st.integers(1, 12))
def test_the_ablation_comes_behind_the_varied_trial_and_before_another_one(secret, total):
    plan = TrialPlan.draw(secret, total)
    varied, large, ablated = plan.varied, plan.large, plan.ablated
    assert 0 <= plan.inspected < total
    if total == 1:
        assert (varied, large, ablated) == (None, None, 0)
        return
    assert 1 <= varied <= ablated < total and 1 <= large < total
    assert total == 2 or (large != varied and ablated <= total - 2)


def test_no_place_of_the_ablation_can_be_counted_on():
    secrets = [hashlib.sha256(bytes([number])).digest() for number in range(200)]
    places = Counter(TrialPlan.draw(secret, 5).ablated for secret in secrets)
    assert set(places) == {1, 2, 3} and max(places.values()) < 100
