# SPDX-License-Identifier: Apache-2.0
"""Where the special trials of an evaluation lie."""

import hashlib
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.env.judge.evaluation import _places


@given(st.binary(min_size=32, max_size=32), st.integers(1, 12))
def test_the_ablation_comes_behind_the_varied_trial_and_before_another_one(secret, total):
    varied, large, ablated = _places(secret, total)
    if total == 1:
        assert (varied, large, ablated) == (None, None, 0)
        return
    assert 1 <= varied <= ablated < total and 1 <= large < total
    assert total == 2 or (large != varied and ablated <= total - 2)


def test_no_place_of_the_ablation_can_be_counted_on():
    secrets = [hashlib.sha256(bytes([number])).digest() for number in range(200)]
    places = Counter(_places(secret, 5)[2] for secret in secrets)
    assert set(places) == {1, 2, 3} and max(places.values()) < 100
