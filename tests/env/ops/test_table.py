# SPDX-License-Identifier: Apache-2.0
"""The table of ops: one row for each, whichever variant of the op is called."""

import pytest
import torch

from verl_kernel.env.ops.table import OPS, Op, Trait, _rows, op_of, row_of
from verl_kernel.env.tamper.trace_checks import is_moving

aten = torch.ops.aten
MOVING = ["aten::copy_", "aten::fill", "aten::tril_", "aten::zero", "aten::put", "aten::cat"]


def test_the_table_has_one_row_for_an_op_of_torch_and_cannot_be_changed():
    with pytest.raises(ValueError, match="op exp has two rows"):
        _rows(("exp sin", Op()), ("cos exp", Op()))
    with pytest.raises(TypeError):
        OPS["add"] = Op()
    left = {"_segment_reduce", "fake_quantize", "real_copy"}  # torch has them with other endings or no longer
    assert {name for name in OPS if not hasattr(aten, name)} <= left


def test_what_is_free_has_no_operations_and_memory_that_grows_is_told():
    assert not [name for name, op in OPS.items() if op.is_free and op.flops is not None]
    assert [name for name, op in OPS.items() if Trait.GROWS in op.traits] == ["resize_as", "resize"]


@pytest.mark.parametrize("name", [*MOVING, "aten::add_", "mine::copy_", "copy_", "", "::", "aten::"])
def test_an_op_that_moves_does_so_in_all_its_variants(name):
    assert is_moving(name) is (name in MOVING)


@pytest.mark.parametrize(("func", "place"), [(aten.fill_.Scalar, 0), (aten.bernoulli.default, None)])
def test_a_tensor_that_is_filled_in_place_is_not_read(func, place):
    assert op_of(func).unread_place(func._schema.name) == place


def test_a_pointwise_op_needs_no_row_and_others_without_one_have_no_price():
    assert "atan2" not in OPS
    assert op_of(aten.atan2.default).flops is not None
    assert op_of(aten._fft_r2c.default).flops is None
    assert row_of("aten::t_").is_free
    assert row_of("aten::empty_like").is_free
