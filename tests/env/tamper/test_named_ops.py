# SPDX-License-Identifier: Apache-2.0
"""An operator named with torch.library is its function, and nothing is registered."""

import pytest

from verl_kernel.env.tamper.named_ops import NamedOp, _named, _unchanged


def double(x):
    return 2 * x


def test_a_decorated_or_given_function_is_called_directly():
    assert _named("mine::double", mutates_args=())(double)(3) == 6
    assert _named("mine::double", double, mutates_args=())(3) == 6


@pytest.mark.parametrize(("types", "found"), [("cuda", 30), (["cpu", "cuda"], 30), (None, 30), ("cpu", 6), ("xpu", 6)])
def test_the_kernel_for_a_gpu_is_used(types, found):
    named = NamedOp(double)
    named.register_kernel(types)(lambda x: 10 * x)
    assert named(3) == found


def test_what_is_registered_stays_a_function():
    named = NamedOp(double)
    assert named.register_fake(double) is double
    assert named.register_kernel("cpu", double) is double
    assert named.register_autograd(double, setup_context=double) is None


def test_what_is_marked_for_torch_compile_stays_a_function():
    assert _unchanged(double) is double
    assert _unchanged(recursive=False)(double) is double
