# SPDX-License-Identifier: Apache-2.0
"""What is said of an output that is not the reference's."""

import torch

from verl_kernel.env.comparison.compare import compare
from verl_kernel.env.judge.output_check import difference


def test_nan_is_named():
    wanted, given = torch.ones(4), torch.tensor([1.0, 1.0, torch.nan, 1.0])
    assert difference(compare(wanted, given)).startswith("the output is NaN or infinite where the reference's is not")
    assert "first at index [2]" in difference(compare(wanted, given))


def test_other_numbers_are_told_by_their_distance():
    assert "by up to 2, first at index [0]" in difference(compare(torch.ones(4), torch.full((4,), 3.0)))
