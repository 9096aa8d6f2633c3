# SPDX-License-Identifier: Apache-2.0
"""Products of float32 on a GPU: what `kernelgym.float32` accepts, with Triton's and torch's own TF32."""

from dataclasses import replace

import pytest

from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.result import EvalStatus
from verl_kernel.env.task import Task

from .products import DEFAULT, EXACT, REFERENCE, SEVEN_BITS, candidate


@pytest.fixture(scope="module")
def verdict(judge):
    def run(mode, source):
        other = Judge(replace(judge._options, float32=mode), seed=2, processes=judge.processes)
        return other.evaluate(Task(REFERENCE), source)

    return run


@pytest.mark.parametrize("mode", ["ieee", "tf32"])
def test_an_exact_product_is_right_in_both_modes(verdict, mode):
    result = verdict(mode, EXACT)
    assert result.status is EvalStatus.OK, result.error
    assert result.env["float32"] == mode


def test_tritons_default_passes_in_tf32_and_not_in_ieee(verdict):
    assert verdict("tf32", DEFAULT).status is EvalStatus.OK
    refused = verdict("ieee", DEFAULT)
    assert refused.status is EvalStatus.INCORRECT
    assert "input_precision" in refused.error.message


@pytest.mark.parametrize("mode", ["ieee", "tf32"])
def test_seven_bits_are_refused_in_both(verdict, mode):
    result = verdict(mode, candidate(SEVEN_BITS))
    assert result.status is EvalStatus.INCORRECT
    assert "input_precision" not in result.error.message
