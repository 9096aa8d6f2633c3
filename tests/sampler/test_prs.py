# SPDX-License-Identifier: Apache-2.0
"""The sampler against a queue that is filled the way verl's agent loop worker fills TransferQueue."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.trainer.ppo.v1.utils import MetricsAggregator

from tests.reward.results import correct, failed, turn
from tests.sampler.trajectories import advantages_of, clear, make_buffer, masks, put, trajectory
from verl_kernel.errors import ConfigError
from verl_kernel.reporting.kernels import read_kernels
from verl_kernel.sampler.prs import PRSReplayBuffer

FAST, LAZY = correct(2.0, 0.9), correct(1.0, 0.1)


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_rejected_turns_leave_both_masks_and_nothing_else(queue: None, mode: str) -> None:
    put("train", f"u{mode.replace('_', '')}", [trajectory(FAST, LAZY), trajectory(LAZY, failed()), trajectory(FAST)])
    batch, metrics = make_buffer(mode).sample(global_steps=1, partition_id="train", batch_size=1)
    found = {key.split("_")[1]: value for key, value in masks(batch).items()}
    assert found == {
        "0": ([1, 1, 1, 0, 0, 0, 0, 0, 0],) * 2,
        "1": ([0, 0, 0, 0, 0, 1, 1, 1, 1],) * 2,
        "2": ([1, 1, 1],) * 2,
    }
    assert metrics["prs/rejected_turns"] == 2
    assert metrics["prs/kept_probability"] == 0.5
    assert metrics["prs/neutral_step"] == 0
    assert metrics["kernel/correct_rate"] == 4 / 5
    assert (metrics["prs/kept/correct_rate"], metrics["prs/rejected/correct_rate"]) == (2 / 3, 1)
    assert (metrics["prs/kept/speedup/mean"], metrics["prs/rejected/speedup/mean"]) == (2, 1)
    assert (metrics["kernel/gym_seconds/max"], metrics["kernel/gym_share"]) == (3, 0.75)
    aggregator = MetricsAggregator()
    aggregator.add_step_metrics(metrics, sample_count=len(batch.keys))
    assert aggregator.get_aggregated_metrics() == pytest.approx(metrics)


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_a_batch_of_lazy_kernels_is_a_neutral_step(queue: None, mode: str, caplog: pytest.LogCaptureFixture) -> None:
    better = correct(1.0, 0.2)
    put("train", "u1", [trajectory(LAZY, better), trajectory(LAZY)])
    buffer = make_buffer(mode)
    batch, metrics = buffer.sample(1, "train", 1)
    found = masks(batch, neutral="u1_0_0")
    advantages = {
        name: advantages_of(batch, name)
        for name in ("trloo", "turn_grpo", "rsft", "rloo", "grpo", "reinforce_plus_plus_baseline")
    }
    assert found == {"u1_0_0": ([0, 0, 0, 0, 0, 1, 1, 1, 1],) * 2, "u1_1_0": ([0, 0, 0],) * 2}
    assert metrics["prs/neutral_step"] == 1
    assert metrics["prs/rejected_turns"] == 3
    assert all(isinstance(value, float) and math.isfinite(value) for value in metrics.values())
    assert "all 3 turns were rejected" in caplog.text
    assert "1 such steps" in caplog.text
    for name, advantage in advantages.items():
        assert advantage.isfinite().all(), name
        assert not advantage.any(), name


@pytest.mark.parametrize(("partition", "enabled"), [("val", True), ("train", False)])
def test_validation_and_a_disabled_sampler_keep_everything(queue: None, partition: str, enabled: bool) -> None:
    put(partition, "u2", [trajectory(LAZY, LAZY)])
    batch, metrics = make_buffer(enabled=enabled).sample(1, partition, 1)
    found = masks(batch)
    assert found == {"u2_0_0": ([1, 1, 1, 0, 0, 1, 1, 1, 1],) * 2}
    assert not [name for name in metrics if name.startswith("prs/")]
    assert ("kernel/correct_rate" in metrics) == (partition == "train")


def test_rows_of_other_agent_loops_pass_through(queue: None) -> None:
    put("train", "u3", [trajectory(LAZY)], with_turns=False)
    batch, metrics = make_buffer().sample(1, "train", 1)
    found = masks(batch)
    assert found == {"u3_0_0": ([1, 1, 1],) * 2}
    assert metrics == {"prs/neutral_step": 0.0, "kernel/unjudged_fraction": 0.0}


UNSURE = [trajectory(correct(1.0, 0.35)) for _ in range(12)]


def drawn(mode: str, uids: tuple[str, ...], global_steps: int = 3, seed: int = 7) -> dict[str, list[bool]]:
    """Per prompt, which of its rollouts were kept; the n-th uid has prompt n, the tasks come in the order of uids."""
    for number, uid in enumerate(uids):
        put("train", uid, UNSURE, prompt=(number, 5), step=3)
    batch, _ = make_buffer(mode, seed=seed).sample(global_steps, "train", len(uids))
    found = masks(batch)
    clear(batch)
    return {uid: [any(found[f"{uid}_{session}_0"][0]) for session in range(len(UNSURE))] for uid in uids}


def test_draws_repeat_over_runs_orders_and_modes(queue: None) -> None:
    first = drawn("sync", ("a", "b", "c"))
    again = drawn("sync", ("x9", "x1", "x5"))
    alone = drawn("sync", ("z",))
    late = drawn("colocate_async", ("q", "r", "s"), global_steps=5)
    assert list(first.values()) == list(again.values()) == list(late.values())
    assert alone["z"] == first["a"]
    assert first["a"] != first["b"] != first["c"]
    assert {kept for rows in first.values() for kept in rows} == {True, False}
    assert list(drawn("sync", ("a", "b", "c"), seed=8).values()) != list(first.values())


def test_a_trajectory_is_kept_or_rejected_as_a_whole(queue: None) -> None:
    barely = correct(1.0, 0.05)
    put(
        "train",
        "u6",
        [trajectory(FAST, barely), trajectory(FAST, LAZY, FAST), trajectory(LAZY, failed()), trajectory(failed())],
    )
    batch, metrics = make_buffer(level="trajectory", width=0.0).sample(1, "train", 1)
    found = [masks(batch)[f"u6_{session}_0"][0] for session in range(4)]
    # Geometric means of coverage: 0.21, 0.43, 0.1, none.
    assert [any(mask) for mask in found] == [False, True, False, True]
    assert found[1] == [1, 1, 1, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1]
    assert metrics["prs/rejected_trajectories"] == 2
    assert metrics["prs/rejected_turns"] == 4


TIED = [([1, 1, 1], [turn(FAST, 0, 3, reward=1.0)])] * 2
TOLD_APART = [([1, 1, 1], [turn(FAST, 0, 3, reward=reward)]) for reward in (1.0, 2.0)]


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_flat_prompts_leave_the_batch(queue: None, mode: str) -> None:
    for uid, rows in (("d1", TIED), ("d2", TOLD_APART), ("d3", TIED)):
        put("train", uid, rows)
    batch, metrics = make_buffer(mode, group_filter="drop").sample(1, "train", 3)
    assert sorted(batch.keys) == ["d2_0_0", "d2_1_0"]
    assert len(batch.tags) == 2
    assert metrics["groups/dropped"] == 2
    assert metrics["groups/flat_fraction"] == pytest.approx(2 / 3)
    left = {key for items in (tq.kv_list() or {}).values() for key in items}
    assert left == set(batch.keys)


def test_a_batch_of_flat_prompts_stays_whole(queue: None) -> None:
    put("train", "e1", TIED)
    batch, metrics = make_buffer(group_filter="drop").sample(1, "train", 1)
    assert len(batch.keys) == 2
    assert metrics["groups/dropped"] == 0
    assert metrics["groups/flat_fraction"] == 1


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_flat_prompts_are_replaced(queue: None, mode: str) -> None:
    asked = []

    def refill(count: int) -> None:
        asked.append(count)
        for number in range(count):
            put("train", f"new{len(asked)}{number}", TOLD_APART)

    for uid, rows in (("f1", TIED), ("f2", TOLD_APART), ("f3", TIED)):
        put("train", uid, rows)
    batch, metrics = make_buffer(mode, refill, group_filter="refill").sample(1, "train", 3)
    uids = {key.split("_")[0] for key in batch.keys}
    # verl asks for more than it evicted and takes any three of those that are left.
    assert len(uids) == 3
    assert not uids & {"f1", "f3"}
    assert sum(asked) >= 2
    assert metrics["training/filter_groups/evicted_samples"] == 2
    assert metrics["groups/flat_fraction"] == 0


def test_flat_prompts_do_not_count_as_ready(queue: None) -> None:
    put("train", "h1", TIED)
    put("train", "h2", TOLD_APART)
    buffer = make_buffer(
        "separate_async", lambda count: pytest.fail("counting replaces nothing"), group_filter="refill"
    )
    assert [buffer.get_sampleable_count(1, "train") for _ in range(2)] == [1, 1]


@pytest.mark.parametrize("mode", ["sync", "colocate_async"])
def test_every_step_has_its_own_quota_of_replacements(queue: None, mode: str) -> None:
    made = []

    def refill(count: int) -> None:
        for _ in range(count):
            made.append(f"q{len(made)}")
            put("train", made[-1], TIED)

    buffer = make_buffer(mode, refill, group_filter="refill", group_refills=1)
    for step in (1, 2):
        refill(2)
        batch, metrics = buffer.sample(step, "train", 2)
        clear(batch)
        assert metrics["training/filter_groups/evicted_samples"] == 2, step


@pytest.mark.parametrize("mode", ["sync", "colocate_async"])
def test_a_one_answer_policy_does_not_refill_for_ever(queue: None, mode: str) -> None:
    made = []

    def refill(count: int) -> None:
        for _ in range(count):
            made.append(f"g{len(made)}")
            put("train", made[-1], TIED)

    refill(2)
    batch, metrics = make_buffer(mode, refill, group_filter="refill", group_refills=2).sample(1, "train", 2)
    assert len({key.split("_")[0] for key in batch.keys}) == 2
    assert metrics["training/filter_groups/evicted_samples"] == 4
    assert metrics["groups/flat_fraction"] == 1


def test_asynchronous_trainers_get_verls_asynchronous_policy() -> None:
    assert not isinstance(make_buffer("sync"), ReplayBufferAsync)
    for mode in ("colocate_async", "separate_async"):
        buffer = make_buffer(mode)
        assert isinstance(buffer, ReplayBufferAsync)
        assert isinstance(buffer, ReplayBuffer)
        assert type(buffer).sample is PRSReplayBuffer.sample
        assert buffer.poll_interval == 0.01


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_a_subclass_of_the_sampler_works_in_every_mode(queue: None, mode: str) -> None:
    class Patient(PRSReplayBuffer):
        def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[tq.KVBatchMeta, dict]:
            batch, metrics = super().sample(global_steps, partition_id, batch_size)
            return batch, metrics | {"patient": 1.0}

    buffer = make_buffer(mode, cls=Patient)
    assert isinstance(buffer, Patient)
    assert isinstance(buffer, ReplayBufferAsync) == (mode != "sync")
    put("train", "u", [trajectory(LAZY, FAST)])
    batch, metrics = buffer.sample(1, "train", 1)
    assert masks(batch) == {"u_0_0": ([0, 0, 0, 0, 0, 1, 1, 1, 1],) * 2}
    assert metrics["patient"] == metrics["prs/rejected_turns"] == 1


def test_a_bad_sampler_option_stops_the_trainer_at_start() -> None:
    with pytest.raises(ConfigError, match=r"sampler_kwargs\.thresold "):
        make_buffer(thresold=0.3)


def test_kernels_that_beat_their_task_are_written_down(queue: None, tmp_path: Path) -> None:
    path = tmp_path / "run" / "kernels.jsonl"

    def sampled(buffer: PRSReplayBuffer, uid: str, step: int, *speedups: float) -> list[tuple[int, int, float]]:
        mask, turns = trajectory(failed(), *(correct(speedup, task_id="relu") for speedup in speedups))
        put("train", uid, [(mask, [t.model_copy(update={"code": f"code of {uid}"}) for t in turns])], step=step)
        clear(buffer.sample(step, "train", 1)[0])
        return [(line["step"], line["turn"], line["speedup"]) for line in read_kernels(path)]

    buffer = make_buffer(best_kernels=str(path))
    assert sampled(buffer, "k1", 1, 2.0, 1.5) == [(1, 2, 2.0)]
    assert sampled(buffer, "k2", 2, 2.0) == [(1, 2, 2.0)]
    assert sampled(buffer, "k3", 3, 1.0, 3.0) == [(1, 2, 2.0), (3, 3, 3.0)]
    assert {(line["reference"], line["code"]) for line in read_kernels(path)} == {
        ("reference of k1", "code of k1"),
        ("reference of k3", "code of k3"),
    }
    line = read_kernels(path)[0]  # `verl-kernel best` says where a kernel comes from
    assert line["sample"]
    assert line["env"] == {}
    assert {"sure_speedup", "reference_mode"} <= line.keys()
    resumed = make_buffer(best_kernels=str(path))
    assert sampled(resumed, "k4", 3, 2.5) == [(1, 2, 2.0), (3, 2, 2.5)]
    assert sampled(make_buffer(best_kernels=str(path)), "k5", 1, 1.1) == [(1, 2, 1.1)]


def test_a_surely_faster_kernel_is_written_down(queue: None, tmp_path: Path) -> None:
    path, buffer = tmp_path / "kernels.jsonl", make_buffer(best_kernels=str(tmp_path / "kernels.jsonl"))
    for step, (speedup, low) in enumerate([(3.0, 1.5), (2.5, 2.2), (4.0, 2.0)], 1):
        result = correct(speedup, task_id="relu", speedup_low=low, timing_source="cuda_event")
        mask, (turn,) = trajectory(result)
        put("train", f"s{step}", [(mask, [turn.model_copy(update={"code": "code"})])], step=step)
        clear(buffer.sample(step, "train", 1)[0])
    assert [(line["step"], line["sure_speedup"]) for line in read_kernels(path)] == [(1, 1.5), (2, 2.2)]


def test_a_resumed_run_writes_its_record_anew_from_its_step_on(queue: None, tmp_path: Path) -> None:
    def sampled(buffer: PRSReplayBuffer, step: int, uid: str) -> None:
        put("train", uid, [trajectory(FAST, LAZY)], step=step)
        clear(buffer.sample(step, "train", 1)[0])

    def recorded() -> dict[str, list[str]]:
        lines = {path.stem: path.read_text().splitlines() for path in tmp_path.glob("*.jsonl")}
        return {step: [json.loads(line)["key"] for line in rows] for step, rows in lines.items()}

    first = make_buffer(record_dir=str(tmp_path))
    for step, uid in ((1, "a"), (2, "b"), (2, "c"), (10, "d")):
        sampled(first, step, uid)
    assert recorded() == {"1": ["a_0_0"], "2": ["b_0_0", "c_0_0"], "10": ["d_0_0"]}
    resumed = make_buffer(record_dir=str(tmp_path))
    sampled(resumed, 2, "e")
    sampled(resumed, 3, "f")
    assert recorded() == {"1": ["a_0_0"], "2": ["e_0_0"], "3": ["f_0_0"]}
    assert sorted(path.name for path in tmp_path.glob("*.old")) == ["10.jsonl.old", "2.jsonl.old"]
