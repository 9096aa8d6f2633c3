# SPDX-License-Identifier: Apache-2.0
"""Two steps of the CPU recipe, checked from what the run left behind: metrics, samples, advantages, checkpoints.

It goes on from the last checkpoint of a killed run, with the data that come next. That one had the reward manager
`kernelgym` in verl's stock single-turn loop with GRPO: what another recipe would do. It loses the whole pool of judges
after its first step, one judge's actor at work after its second, and goes on until it is killed.
"""

import json
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import ray

from tests.advantage.oracle import naive_trloo
from tests.e2e import weights
from tests.e2e.losses import checkpoints
from tests.e2e.runs import PROMPTS, Run, command, environment
from verl_kernel.advantage.turns import ZERO_REWARD
from verl_kernel.bench.scores import attempt, score_run
from verl_kernel.bench.validation import read_validation
from verl_kernel.figures.attempts import RunPlan
from verl_kernel.figures.scoring import score
from verl_kernel.generated_tasks.kinds import SPLITS
from verl_kernel.quickstart.options import Quickstart
from verl_kernel.reporting.kernels import best_kernels, read_kernels
from verl_kernel.reporting.steps import read_steps, read_validations

pytestmark = [*(pytest.mark.e2e, pytest.mark.slow, pytest.mark.ray, pytest.mark.exhaustive), pytest.mark.timeout(7200)]

THRESHOLD, WIDTH = 0.9, 0.2
"""Of PRS: a kernel that does all of the work is kept every other time, one that does less than 0.9 of it never."""


@dataclass
class Resumed(Run):
    """The run that went on, and what `verl-kernel watch` said of it."""

    said: str
    first: int
    """Its first step."""

    @property
    def numbers(self) -> tuple[int, int]:
        return self.first, self.first + 1


@pytest.fixture(scope="module")
def run(quickstart, killed):
    folder, first = killed.folder, killed.done + 1
    words = command(
        quickstart, folder, f"data.train_files={folder}/train.parquet", "trainer.resume_mode=resume_path",
        # Another estimator has written it, which `auto` would refuse.
        f"trainer.resume_from_path={folder}/checkpoints/global_step_{killed.done}",
        f"trainer.total_training_steps={first + 1}", *checkpoints(folder), f"trainer.test_freq={first + 1}",
        "actor_rollout_ref.rollout.val_kwargs.n=1", f"trainer.validation_data_dir={folder}/validation",
        f"trainer.v1.sampler.sampler_kwargs.record_dir={folder}/samples",
        f"trainer.v1.sampler.sampler_kwargs.best_kernels={folder}/kernels.jsonl",
        f"trainer.v1.sampler.sampler_kwargs.threshold={THRESHOLD}", f"trainer.v1.sampler.sampler_kwargs.width={WIDTH}",
        f"algorithm.trloo.record_dir={folder}/advantages",
    )  # fmt: skip
    watch = [Path(sys.executable).with_name("verl-kernel"), "watch", "--resume", folder, "--"]
    # Somebody else's Ray on the machine, which the run must not join.
    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        done = subprocess.run(
            [*watch, *words], cwd=folder, env=environment(folder), text=True, capture_output=True, timeout=3600
        )
    finally:
        ray.shutdown()
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return Resumed(folder, done.stdout, first)


def test_a_killed_run_goes_on_with_the_data_that_come_next(run, killed):
    done = run.first - 1
    assert f"global_step_{done}: step {done + 1} is next" in run.said
    assert [step["step"] for step in read_steps(run.folder / "metrics.jsonl")] == list(range(1, done + 3))
    for number in run.numbers:
        dumped = (run.folder / "rollouts" / f"{number}.jsonl").read_text().splitlines()
        prompts = {json.loads(line)["input"] for line in dumped}
        # The recipe does not shuffle: step k takes the k-th `PROMPTS` rows.
        expected = killed.prompts[PROMPTS * (number - 1) : PROMPTS * number]
        assert len(prompts) == PROMPTS
        assert all(any(text in prompt for prompt in prompts) for text in expected)


def advantages(run: Resumed, step: int) -> dict[str, np.ndarray]:
    with np.load(run.folder / "advantages" / f"{step - run.first + 1:06d}.npz") as arrays:
        return dict(arrays)


def judged(run: Resumed) -> list[dict]:
    return [turn for step in run.numbers for row in run.rows(step) for turn in row["turns"]]


def test_every_step_is_logged_with_the_kernel_metrics(run):
    steps = [step for step in run.steps if "training/global_step" in step]
    assert len(steps) == 2
    for step in steps:
        for key in ("compiled_rate", "correct_rate", "decoy_rate", "hacked_rate", "infra_error_rate", "fast@1.2"):
            assert 0 <= step[f"kernel/{key}"] <= 1
        assert "kernel/turn_1/correct_rate" in step
        assert "kernel/turn_2/correct_rate" in step
        for key in ("actor/entropy", "training/rollout_probs_diff_mean", "rollout_corr/kl", "critic/advantages/max"):
            assert np.isfinite(step[key])
        assert "prs/kept/reward/mean" in step


def test_some_step_teaches(run):
    """In one step all answers of each may be worth the same."""
    steps = [step for step in run.steps if "training/global_step" in step]
    assert any(step["critic/score/max"] > step["critic/score/min"] for step in steps)
    assert any(step["groups/zero_gradient_fraction"] < 1 for step in steps)


def validated(run: Resumed) -> dict[str, float]:
    """Means over the tasks of the validation, from verl's means over those of each split."""
    (validation,) = read_validations(run.folder / "metrics.jsonl")
    assert validation.pop("step") == run.first + 1
    tasks = Quickstart(val_tasks=1).validation
    found: dict[str, float] = defaultdict(float)
    for key, value in validation.items():
        source, _, figure = key.partition("/")
        found[figure.rpartition("/")[2]] += value * tasks[source.removeprefix("kernel_world_")] / sum(tasks.values())
    return found


def test_the_last_step_is_validated_by_split(run):
    (validation,) = read_validations(run.folder / "metrics.jsonl")
    assert {key.partition("/")[0] for key in validation} == {"step", *(f"kernel_world_{split}" for split in SPLITS)}
    figures = validated(run)
    assert 0 <= figures["acc"] <= figures["best_turn_acc"] <= 1
    assert 0 <= figures["last_turn_fast@1.2"] <= figures["best_turn_fast@1.2"] <= figures["best_turn_acc"]


def test_our_scores_of_the_validated_samples_are_verls_figures(run):
    logged = validated(run)
    attempts = [attempt(turn) for turn in read_validation(run.folder / "validation" / f"{run.first + 1}.jsonl")]
    found = score(attempts, RunPlan.of(attempts))
    assert found.tasks > 1
    assert found.turns == 2
    assert found.lost == found.missing == 0
    last, best = found.overall.last_turn.values, found.overall.best_of_history.values
    assert logged["acc"] == pytest.approx(found.verl_acc.value) == pytest.approx(last["correct"].value)
    assert logged["best_turn_acc"] == pytest.approx(best["correct"].value)
    assert logged["last_turn_fast@1.2"] == pytest.approx(last["fast@1.2"].value)
    assert logged["best_turn_fast@1.2"] == pytest.approx(best["fast@1.2"].value)
    assert found.overall.tokens > 0


def test_a_bench_of_the_validated_kernels_has_verls_figures(run, quickstart, tmp_path):
    logged = validated(run)
    for turn in read_validation(run.folder / "validation" / f"{run.first + 1}.jsonl"):
        if turn.turn == 2 and turn.code is not None:
            (tmp_path / f"{turn.task_id}.py").write_text(turn.code)
    words = ["--suite", quickstart / "val.parquet", "--kernels", tmp_path, "--out", tmp_path / "run", "--device", "cpu"]
    words += ["--trials", "2", "--compile-for", "off", "--memory-checks", "off"]  # The recipe's.
    subprocess.run([sys.executable, "-m", "verl_kernel", "bench", *words], check=True, timeout=600)
    _, found = score_run(tmp_path / "run")
    # The bench draws other inputs. Where torch itself rounds much, an answer may be right on these and wrong on those.
    one = 1.01 / found.tasks
    assert found.overall.last_turn.values["correct"].value == pytest.approx(logged["acc"], abs=one)
    assert found.overall.last_turn.values["fast@1.2"].value == pytest.approx(logged["last_turn_fast@1.2"], abs=one)


def test_the_best_kernels_are_those_of_the_samples(run):
    fastest = {
        turn["result"]["task_id"]: turn["result"]["speedup"]
        for turn in sorted(judged(run), key=lambda turn: turn["result"]["speedup"] or 0.0)
        if turn["result"]["status"] == "ok"
    }
    best = best_kernels(read_kernels(run.folder / "kernels.jsonl"), 1000)
    assert best
    assert {kernel["task_id"]: kernel["speedup"] for kernel in best} == fastest
    assert all("class ModelNew" in kernel["code"] and "class Model" in kernel["reference"] for kernel in best)
    assert all(step["kernel/gym_seconds/mean"] > 0 and 0 < step["kernel/gym_share"] < 1 for step in run.steps)


def test_kernels_were_really_executed(run):
    launched = [t["result"] for t in judged(run) if t["result"]["launches"]]
    assert launched, "no turn launched a kernel"
    assert all(launch["count"] >= 1 for result in launched for launch in result["launches"])
    assert {result["timing_source"] for result in launched if result["timing_source"]} == {"simulated"}


def test_several_outcomes_occur_and_none_is_ours(run):
    statuses = {turn["result"]["status"] for turn in judged(run)}
    assert "ok" in statuses
    assert len(statuses) >= 3
    assert "infra_error" not in statuses


def test_each_turns_reward_sits_on_its_last_token(run):
    for step in run.numbers:
        for row in run.rows(step):
            scores = np.array(row["rm_scores"], dtype=np.float32)
            assert len(row["turns"]) == 2
            expected = [max(turn["reward"], ZERO_REWARD) for turn in row["turns"]]
            assert np.flatnonzero(scores).tolist() == [turn["stop"] - 1 for turn in row["turns"]]
            np.testing.assert_allclose(scores[scores != 0], expected, rtol=1e-6)
            mask = np.array(row["generated_mask"])
            spans = np.zeros_like(mask)
            for turn in row["turns"]:
                spans[turn["start"] : turn["stop"]] = 1
            np.testing.assert_array_equal(mask, spans)


def test_the_trainers_advantages_match_the_naive_oracle(run):
    for step in run.numbers:
        record = advantages(run, step)
        rewards = [[r if r > ZERO_REWARD else 0.0 for r in row[row != 0].tolist()] for row in record["rewards"]]
        oracle = naive_trloo(rewards, record["uid"].tolist())
        for row, mask, got, values in zip(record["rewards"], record["mask"], record["advantages"], oracle, strict=True):
            stops = (np.flatnonzero(row) + 1).tolist()
            per_token = np.repeat(values, np.diff([0, *stops])).tolist()
            per_token += [values[-1]] * (len(row) - len(per_token))
            np.testing.assert_allclose(got, np.array(per_token) * mask, atol=1e-5)


def test_the_estimator_saw_the_sampled_rewards(run):
    for step in run.numbers:
        sampled = sorted((*np.flatnonzero(row["rm_scores"]), sum(row["rm_scores"])) for row in run.rows(step))
        seen = [row for row in advantages(run, step)["rewards"] if row.any()]
        estimated = sorted((*np.flatnonzero(row), float(row.sum())) for row in seen)
        np.testing.assert_allclose(np.array(sampled, dtype=float), np.array(estimated, dtype=float), rtol=1e-5)


def test_prs_rejected_what_its_rule_says(run):
    rejected, drawn = 0, []
    for step in run.numbers:
        for row in run.rows(step):
            mask = np.array(row["response_mask"])
            for turn in row["turns"]:
                result = turn["result"]
                span = mask[turn["start"] : turn["stop"]]
                assert span.all() if turn["kept"] else not span.any()
                if result["status"] != "ok":
                    assert turn["kept"]
                elif result["time_coverage"] <= THRESHOLD:
                    assert not turn["kept"]
                else:
                    drawn.append(turn["kept"])
                rejected += not turn["kept"]
    # How often the draw keeps a turn is tested in tests/sampler; a young policy has few turns to draw for.
    assert drawn
    assert sum(step.get("prs/rejected_turns", 0) for step in run.steps) == rejected


def test_the_weights_changed_and_reached_vllm(run):
    stale, fresh = (weights.of_step(run.folder, step) for step in (run.first - 1, run.first))
    assert weights.drift(stale, fresh) > 1e-5
    rows = run.rows(run.first + 1)[:8]
    assert weights.mean_gap(fresh, rows) < 1e-3
    assert weights.mean_gap(stale, rows) > 3 * weights.mean_gap(fresh, rows)


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
