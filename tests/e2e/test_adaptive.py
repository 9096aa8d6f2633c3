# SPDX-License-Identifier: Apache-2.0
"""Three steps of the CPU recipe with Reinforce-Ada-Seq-balance: rounds against the gym, pools in the advantages."""

from statistics import mean

import pytest

from tests.e2e.runs import PROMPTS, SAMPLES, command, train

pytestmark = [*(pytest.mark.e2e, pytest.mark.slow, pytest.mark.ray, pytest.mark.exhaustive), pytest.mark.timeout(7200)]
KEPT = SAMPLES


@pytest.fixture(scope="module")
def run(quickstart, tmp_path_factory):
    folder = tmp_path_factory.mktemp("adaptive")
    words = command(
        quickstart, folder, "method=ada_seq_balance", "trainer.total_training_steps=3", "trainer.save_freq=-1",
        f"trainer.v1.sampler.sampler_kwargs.record_dir={folder}/samples",
        f"algorithm.trloo.record_dir={folder}/advantages",
    )  # fmt: skip
    return train(folder, words)


def test_every_prompt_keeps_n_of_its_draws(run):
    for number, step in enumerate(run.steps[:3], 1):
        assert step["ada/draws/total"] >= PROMPTS * KEPT
        assert step["ada/draws/max"] <= 32
        assert step["ada/missing_pools"] == 0
        assert step["ada/judge_calls/total"] > 0
        assert sum(step[f"ada/exit/{reason}"] for reason in ("met", "limit", "stalled")) == pytest.approx(1)
        rows = run.rows(number)
        assert len(rows) == PROMPTS * KEPT
        assert sorted({row["key"].rsplit("_", 2)[1] for row in rows}) == [str(i) for i in range(KEPT)]


def test_half_of_a_prompts_rows_are_positive(run):
    assert any(step["ada/exit/met"] > 0 for step in run.steps[:3])
    for number, step in enumerate(run.steps[:3], 1):
        results = [[turn["result"] for turn in row["turns"]] for row in run.rows(number)]
        # As fast as the reference counts, which `fast@1` leaves out (`AdaOptions.positive_from`).
        share = mean(any(one["status"] == "ok" and (one["speedup"] or 0.0) >= 1.0 for one in row) for row in results)
        assert step["ada/exit/met"] / 2 <= share <= 1 - step["ada/exit/met"] / 2


def test_the_run_learns(run):
    assert all(step["actor/grad_norm"] > 0 for step in run.steps[:3])
