# SPDX-License-Identifier: Apache-2.0
"""Constants of the papers that were made for rewards of 0 and 1 say so where they are set."""

from pathlib import Path

import pytest

from verl_kernel.advantage import RecOptions
from verl_kernel.loss.options import RecLossOptions
from verl_kernel.preflight.option_files import sentences
from verl_kernel.reward.profiling import ProfilingReward

PAGE = Path(__file__).parents[2] / "docs" / "algorithms" / "off_policy.md"
KEYS = [(RecOptions, key) for key in ("asymre_shift", "opmd_tau")]
KEYS += [(RecLossOptions, key) for key in ("coef", "temperature")]


@pytest.mark.parametrize(("kind", "key"), KEYS)
def test_a_constant_for_rewards_of_0_and_1_says_so(kind, key):
    assert "for rewards of 0 and 1: multiply it by the largest return" in " ".join(sentences(kind)[key].split())
    (units,) = (text for text in PAGE.read_text().split("\n\n") if text.startswith("**Units of the reward.**"))
    assert f"`{key}`" in units


def test_the_page_knows_the_largest_reward_of_a_turn():
    pays = ProfilingReward()
    largest = pays.scale * (pays.correct_weight + pays.speedup_cap * pays.speedup_weight + pays.coverage_weight)
    assert f"{largest:g} by default" in PAGE.read_text()
    assert f"{2 * largest:g} in `cpu_quickstart`" in PAGE.read_text()
