# SPDX-License-Identifier: Apache-2.0
"""Two steps of an asynchronous trainer with its preset: the second one trains on samples of older weights.

Its tasks have two sizes each.
"""

from pathlib import Path

import numpy as np
import pandas
import pytest

from tests.e2e.runs import PROMPTS, SAMPLES, command, train

pytestmark = [*(pytest.mark.e2e, pytest.mark.slow, pytest.mark.ray, pytest.mark.exhaustive), pytest.mark.timeout(7200)]

STALENESS = "training/off_policy/trajectory_staleness_worst/max"


ROWS = (8, 13)


def sized(reference: str) -> str:
    takes_rows = reference.replace("get_inputs()", "get_inputs(rows)").replace("(ROWS, COLS)", "(rows, COLS)")
    return f"{takes_rows}WORKLOADS = {[{'rows': count} for count in ROWS]}\n"


def at_two_sizes(quickstart: Path, path: Path) -> Path:
    """The training tasks, each at two numbers of rows: none of their models asks for one."""
    rows = pandas.read_parquet(quickstart / "train.parquet")
    rows["reward_model"] = [{**model, "ground_truth": sized(model["ground_truth"])} for model in rows["reward_model"]]
    rows.to_parquet(path)
    return path


@pytest.fixture(scope="module")
def run(quickstart, tmp_path_factory):
    folder = tmp_path_factory.mktemp("colocate_async")
    words = command(
        quickstart, folder, f"data.train_files={at_two_sizes(quickstart, folder / 'train.parquet')}",
        "trainer_mode=colocate_async", "trainer.total_training_steps=2", "trainer.save_freq=-1",
        f"trainer.v1.sampler.sampler_kwargs.record_dir={folder}/samples",
    )  # fmt: skip
    return train(folder, words)


def test_the_second_step_trains_on_samples_of_older_weights(run):
    first, second = (step for step in run.steps if "training/global_step" in step)
    assert first[STALENESS] == 0
    assert second[STALENESS] == 1
    assert first["actor/grad_norm"] > 0
    assert second["actor/grad_norm"] > 0
    # The update shows: the engines alone differ by far less.
    assert second["rollout_corr/log_ppl_abs_diff"] > 10 * first["rollout_corr/log_ppl_abs_diff"]


def test_staleness_is_weighted_and_not_taken_for_mismatch(run):
    for step in run.steps:
        assert step["rollout_corr/rollout_rs_masked_fraction"] < 0.1
        assert step["rollout_corr/rollout_is_mean"] == pytest.approx(1, abs=0.05)


def test_the_sampler_judged_both_batches(run):
    for step in (1, 2):
        rows = run.rows(step)
        assert len(rows) == PROMPTS * SAMPLES
        assert all(len(row["turns"]) == 2 for row in rows)
        assert all(np.isfinite(row["rollout_log_probs"]).all() for row in rows)
        assert run.steps[step - 1]["kernel/correct_rate"] > 0


def test_right_answers_are_right_at_both_sizes(run):
    results = [turn["result"] for step in (1, 2) for row in run.rows(step) for turn in row["turns"]]
    right = [result for result in results if result["status"] == "ok"]
    assert right
    assert all([size["name"] for size in result["sizes"]] == ["rows=8", "rows=13"] for result in right)
