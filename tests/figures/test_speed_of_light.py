# SPDX-License-Identifier: Apache-2.0
"""Shares of the roofline and SOL scores."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.figures.attempts import roofline_share, sol_score

times = st.floats(1e-4, 1e4)


@pytest.mark.parametrize(("kernel", "score"), [(3.0, 0.5), (1.0, 1.0), (2.0, 2 / 3), (5.0, 1 / 3), (0.5, 1.0)])
def test_sol(kernel, score):
    assert sol_score(kernel, reference_ms=3.0, roofline_ms=1.0) == pytest.approx(score)


@given(times, times, times)
def test_both_are_shares_and_fall_with_time(kernel, reference, roofline):
    score, share = sol_score(kernel, reference, roofline), roofline_share(kernel, roofline)
    assert 0 < share <= 1
    assert (score is None) == (reference <= roofline)
    if score is not None:
        assert 0 < score <= 1
        assert sol_score(2 * kernel, reference, roofline) <= score
    assert roofline_share(2 * kernel, roofline) <= share
