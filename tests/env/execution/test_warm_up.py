# SPDX-License-Identifier: Apache-2.0
"""The small launch of a new executing process."""

from verl_kernel.env.execution import warm_up


def test_it_computes():
    assert warm_up.run(warm_up.made()).tolist() == [2.0 * number for number in range(32)]
