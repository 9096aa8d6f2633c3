# SPDX-License-Identifier: Apache-2.0
"""The reward manager `kernelgym` in verl's stock single-turn loop with GRPO: what another recipe would do.

It loses the whole pool of judges after its first step, one judge's actor at work after its second, and goes on.
Then the run itself is killed, and neither workers nor vLLM's nor the gym's processes may outlive it.
"""

import pytest

pytestmark = [*(pytest.mark.e2e, pytest.mark.slow, pytest.mark.ray, pytest.mark.exhaustive), pytest.mark.timeout(2400)]


def test_the_stock_loop_survives_the_loss_of_its_judges(killed):
    assert len(killed.steps) >= 3
    for step in killed.steps[:3]:
        assert step["critic/score/max"] > step["critic/score/min"] >= 0
        assert step["actor/grad_norm"] > 0
    assert "the pool kernelgym was lost and begins again" in killed.log
    assert "a judge's actor is gone" in killed.log


def test_nothing_outlives_a_killed_trainer(killed):
    assert any("raylet" in name for name in killed.at_work)
    assert any("verl_kernel.env" in name for name in killed.at_work)
    assert killed.left == []
