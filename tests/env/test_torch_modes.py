# SPDX-License-Identifier: Apache-2.0
"""Modes of torch: which are set, and that all is as before afterwards."""

import pytest
import torch
from torch import nn

from verl_kernel.env.torch_modes import recording_gradients, switched


@pytest.mark.parametrize("training", [True, False])
def test_modules_are_switched_and_each_is_as_before_afterwards(training):
    made = nn.Sequential(nn.Dropout(0.5).eval(), nn.Sequential(nn.Identity()))
    made.training = training
    before = [module.training for module in made.modules()]
    with pytest.raises(ZeroDivisionError), switched(made):
        assert {module.training for module in made.modules()} == {not training}
        raise ZeroDivisionError
    assert [module.training for module in made.modules()] == before


def test_what_is_no_module_has_no_mode():
    with switched(print):
        pass


def test_gradients_are_recorded_and_no_value_is_kept_for_them():
    weight, big = nn.Parameter(torch.ones(1)), torch.ones(4096)
    kept = big.untyped_storage()._use_count() if hasattr(big.untyped_storage(), "_use_count") else None
    with torch.no_grad(), recording_gradients():
        product = big * weight
        assert torch.is_grad_enabled()
        assert product.requires_grad
        assert product.grad_fn is not None
    if kept is not None:
        assert big.untyped_storage()._use_count() == kept
    with pytest.raises(RuntimeError, match="no backward pass"):
        product.sum().backward()
