# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipes.cpu_study.student import both_tails, p_value, quantile


@pytest.mark.parametrize(
    ("freedom", "value"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (11, 2.2010), (30, 2.0423), (200, 1.9719)],
)
def test_quantiles(freedom, value):
    assert quantile(freedom) == pytest.approx(value, abs=1e-4)


@given(st.integers(1, 40), st.floats(0, 30))
def test_tails_are_the_integral_of_the_density(freedom, t):
    points = np.linspace(0.0, t, 20_001)
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    inner = 2 * scale * np.trapezoid((1 + points**2 / freedom) ** (-(freedom + 1) / 2), points)
    assert both_tails(t, freedom) == pytest.approx(1 - inner, abs=1e-5)
    assert both_tails(-t, freedom) == both_tails(t, freedom)


def test_p_of_values():
    assert p_value([1.0, 2.0, 3.0]) == pytest.approx(both_tails(2.0 * math.sqrt(3), 2))
    assert p_value([0.3]) == 1.0
    assert p_value([0.0, 0.0]) == 1.0
    assert p_value([0.1, 0.1]) == 0.0
