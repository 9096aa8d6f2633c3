# SPDX-License-Identifier: Apache-2.0
"""A launch that no GPU can fill never beats one that can, as a judge sees them."""

import pytest

from tests.env.clocks import programs
from tests.tiers import thinned
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.task import Task

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def judge(judge_processes):
    with Judge(GymOptions(device="cpu", correctness_trials=1), seed=3, processes=judge_processes) as judge:
        yield judge


def speedup(judge, reference, source):
    result = judge.evaluate(Task(reference), source)
    assert result.rewarded, result.error
    assert result.time_coverage == 1.0, result.error
    return result.speedup


@pytest.mark.parametrize("sizes", thinned([(4, 128), (64, 512), (200, 200)], 3), ids=str)
def test_layer_norm_by_rows_beats_layer_norm_in_one_program(judge, sizes):
    rows, columns = sizes
    reference = programs.LAYER_NORM.format(rows=rows, columns=columns)
    many, one = (speedup(judge, reference, source) for source in (programs.ROW_PROGRAMS, programs.ONE_PROGRAM))
    assert many > one
    assert 0.8 < many <= 1.05  # torch's own layer norm has a block for a row too
    assert one < 0.5 or rows == 4


@pytest.mark.exhaustive
def test_three_launches_beat_one_block_for_everything(judge):
    three = speedup(judge, programs.BLOCK_OF_LAYERS, programs.THREE_LAUNCHES)
    one = speedup(judge, programs.BLOCK_OF_LAYERS, programs.ONE_LAUNCH)
    assert three > 2.0 > one
