# SPDX-License-Identifier: Apache-2.0
"""The largest saving that a profile names points to the program that is faster."""

import pytest

from tests.env.clocks.programs import PAIRS
from tests.tiers import thinned
from verl_kernel.env.judge.judge import Judge
from verl_kernel.env.options import GymOptions
from verl_kernel.env.task import Task

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def judged(judge_processes):
    known = {}
    options = GymOptions(device="cpu", correctness_trials=1, ablation=False, compile_for="sm_90")
    with Judge(options, seed=3, processes=judge_processes) as judge:

        def result(name, which):
            if (name, which) not in known:
                pair = PAIRS[name]
                known[name, which] = judge.evaluate(Task(pair.task), getattr(pair, which))
                assert known[name, which].rewarded, known[name, which].error
            return known[name, which]

        yield result


@pytest.mark.parametrize("name", thinned(PAIRS, 10))
def test_the_named_change_leads_to_the_faster_program(name, judged):
    slow, fast = (judged(name, which) for which in ("slow", "fast"))
    assert fast.kernel_ms.median < slow.kernel_ms.median
    assert slow.profile.changes[0].kind in PAIRS[name].kinds


@pytest.mark.parametrize("name", thinned(PAIRS, 10))
def test_the_predicted_saving_is_what_the_faster_one_makes(name, judged):
    slow, fast = (judged(name, which) for which in ("slow", "fast"))
    assert slow.profile.ms == slow.kernel_ms.median
    assert 0.9 * fast.kernel_ms.median < slow.profile.changes[0].ms < 0.95 * slow.kernel_ms.median


@pytest.mark.exhaustive
def test_the_better_program_has_nothing_left_of_the_kind(judged):
    for name in ("coalesced", "read once", "fused", "lazy", "filled"):
        assert not PAIRS[name].kinds & {change.kind for change in judged(name, "fast").profile.changes}
