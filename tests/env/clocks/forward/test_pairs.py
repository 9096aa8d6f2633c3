# SPDX-License-Identifier: Apache-2.0
"""The largest saving that a profile names points to the program that is faster; what no GPU can fill is not faster."""

import functools

import pytest

from tests.env.clocks import programs
from tests.env.clocks.programs import PAIRS
from tests.tiers import thinned
from verl_kernel.env.options import GymOptions
from verl_kernel.env.task import Task

pytestmark = pytest.mark.processes
OPTIONS = GymOptions(device="cpu", correctness_trials=1)


@pytest.fixture(scope="module")
def judged(judge_with):
    with judge_with(ablation=False, compile_for="sm_90") as judge:

        @functools.cache
        def result(name, which):
            found = judge.evaluate(Task(PAIRS[name].task), getattr(PAIRS[name], which))
            assert found.rewarded, found.error
            return found

        yield result


@pytest.mark.parametrize("name", thinned(PAIRS, 10))
def test_the_named_change_leads_to_the_faster_program(name, judged):
    slow, fast = (judged(name, which) for which in ("slow", "fast"))
    assert fast.kernel_ms.median < slow.kernel_ms.median
    assert slow.profile.changes[0].kind in PAIRS[name].kinds
    assert slow.profile.ms == slow.kernel_ms.median
    assert 0.9 * fast.kernel_ms.median < slow.profile.changes[0].ms < 0.95 * slow.kernel_ms.median


@pytest.mark.exhaustive
def test_the_better_program_has_nothing_left_of_the_kind(judged):
    for name in ("coalesced", "read once", "fused", "examples", "filled"):
        assert not PAIRS[name].kinds & {change.kind for change in judged(name, "fast").profile.changes}


def speedup(judge, reference, source):
    result = judge.evaluate(Task(reference), source)
    assert result.rewarded, result.error
    assert result.time_coverage == 1.0, result.error
    return result.speedup


@pytest.mark.parametrize("sizes", thinned([(4, 128), (64, 512), (200, 200)], 3), ids=str)
def test_layer_norm_by_rows_beats_layer_norm_in_one_program(judge, sizes):
    reference = programs.LAYER_NORM.format(rows=sizes[0], columns=sizes[1])
    many, one = (speedup(judge, reference, source) for source in (programs.ROW_PROGRAMS, programs.ONE_PROGRAM))
    assert many > one
    assert 0.8 < many <= 1.05  # torch's own layer norm has a block for a row too
    assert one < 0.5 or sizes[0] == 4
