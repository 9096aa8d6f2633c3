# SPDX-License-Identifier: Apache-2.0
"""What is said of an output that is not the reference's."""

import pytest
import torch

from verl_kernel.env.comparison.compare import compare
from verl_kernel.env.judge.output_check import difference


@pytest.mark.parametrize(
    ("wanted", "given", "told"),
    [
        (1e-6, 2e-6, "2e-06 instead of 1e-06"),
        (1.0, 1.0002, "1.0002 instead of 1"),
        (123456, 123457, "123457 instead of 123456"),
        (2**40, 2**40 + 1, "1099511627777 instead of 1099511627776"),
        (True, False, "0 instead of 1"),
        (1.0, 3.0, "by up to 2, first at index [0]: 3 instead of 1"),
    ],
)
def test_the_first_wrong_value_is_told_with_enough_digits(wanted, given, told):
    assert difference(compare(torch.tensor([wanted]), torch.tensor([given]))).endswith(told)


def test_what_was_never_written_is_told_where_the_rest_is_close():
    wanted = torch.tensor([1.0, 2e-6, 3e-6])
    said = difference(compare(wanted, torch.tensor([1.0 + 1e-7, torch.nan, 3e-6])))
    assert said.startswith("the output is NaN or infinite where the reference's is not")
    assert said.endswith("first at index [1]: nan instead of 2e-06")
