# SPDX-License-Identifier: Apache-2.0
"""Masks that mix block and scalar conditions on the interpreter device; the kernels are in mask_cases.py."""

from pathlib import Path

import pytest

from tests.env.devices.cases import run_cases
from verl_kernel.env.backends import resolve_device

CASES = Path(__file__).with_name("mask_cases.py")


@pytest.fixture(scope="module")
def cases():
    return run_cases(CASES, resolve_device("cpu").zygote_env())


def test_every_mix_of_block_and_scalar_conditions_masks_and_counts_as_numpy_does(cases):
    assert len(cases["masks"]) >= 60
    assert {mask: wrong for mask, wrong in cases["masks"].items() if wrong} == {}


def test_a_store_whose_mixed_mask_lets_a_lane_out_of_its_tensor_is_found(cases):
    assert cases["outside"].startswith("OutOfBounds")
