# SPDX-License-Identifier: Apache-2.0
"""The small launch of a new executing process."""

from verl_kernel.env.execution import zygote


def test_it_computes():
    assert zygote.run(zygote.made()).tolist() == [2.0 * number for number in range(32)]
