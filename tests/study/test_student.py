# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest

from recipes.cpu_study.student import p_value, power, quantile


@pytest.mark.parametrize(("freedom", "value"), [(1, 12.7062), (4, 2.7764), (7, 2.3646), (30, 2.0423)])
def test_quantiles(freedom, value):
    assert quantile(freedom) == pytest.approx(value, abs=1e-4)


def test_p_of_values():
    # A t of 2 * sqrt(3) with two degrees of freedom, whose distribution has a closed form.
    assert p_value([1.0, 2.0, 3.0]) == pytest.approx(1 - 2 * math.sqrt(3) / math.sqrt(2 + 12))
    assert p_value([0.3]) == 1.0
    assert p_value([0.0, 0.0]) == 1.0
    assert p_value([0.1, 0.1]) == 0.0


@pytest.mark.parametrize(
    ("effect", "seeds", "level"), [(0.06, 8, 0.05), (-0.1, 8, 0.05 / 12), (0.0, 5, 0.05), (1 / 6, 8, 0.05 / 18)]
)
def test_power_is_the_share_of_experiments_that_find_the_effect(effect, seeds, level):
    drawn = np.random.default_rng(0).normal(effect, 0.05, size=(4000, seeds))
    found = np.mean([p_value(list(row)) < level for row in drawn])
    assert power(effect, 0.05, seeds, level) == pytest.approx(found, abs=0.02)
