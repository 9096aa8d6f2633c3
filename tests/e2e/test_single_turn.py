# SPDX-License-Identifier: Apache-2.0
"""The reward manager `kernelgym` in verl's stock single-turn loop with GRPO: what another recipe would do."""

from pathlib import Path

import pandas
import pytest

from tests.e2e.conftest import train

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.ray]


def test_stock_loop_grpo_and_our_reward_manager(quickstart: Path, tmp_path: Path):
    # A row's agent_name would win over the recipe's default_agent_loop.
    rows = pandas.read_parquet(quickstart / "train.parquet").drop(columns="agent_name")
    rows.to_parquet(tmp_path / "train.parquet")
    run = train(
        tmp_path,
        "trainer.total_training_steps=1",
        f"data.train_files={tmp_path}/train.parquet",
        "actor_rollout_ref.rollout.agent.default_agent_loop=single_turn_agent",
        "algorithm.adv_estimator=grpo",
        "trainer.v1.sampler.custom_sampler.path=null",
        "trainer.v1.sampler.custom_sampler.name=null",
    )
    (step,) = run.steps
    assert step["critic/score/max"] > step["critic/score/min"] >= 0
    assert step["actor/grad_norm"] > 0
