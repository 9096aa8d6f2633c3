# SPDX-License-Identifier: Apache-2.0
"""The sampler against a queue that is filled the way verl's agent loop worker fills TransferQueue."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.trainer.ppo.v1.utils import MetricsAggregator
from verl.utils.import_utils import load_extern_type
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from tests.reward.results import correct, failed, turn
from tests.sampler.memory_queue import MemoryQueue
from verl_kernel.env.result import EvalResult
from verl_kernel.errors import ConfigError
from verl_kernel.evaluation.kernels import read_kernels
from verl_kernel.reward.record import TurnRecord, dump_turns
from verl_kernel.sampler.prs import PRSReplayBuffer

FAST, LAZY = correct(2.0, 0.9), correct(1.0, 0.1)


@pytest.fixture(scope="module", params=["memory", pytest.param("transfer_queue", marks=pytest.mark.ray)])
def queue(request: pytest.FixtureRequest) -> Iterator[None]:
    """A queue in this process, and TransferQueue itself."""
    if request.param == "memory":
        memory = MemoryQueue()
        with pytest.MonkeyPatch.context() as patch:
            for name in ("kv_put", "kv_batch_put", "kv_batch_get", "kv_list", "kv_clear"):
                patch.setattr(tq, name, getattr(memory, name))
            yield
        return
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    tq.init(OmegaConf.create({"backend": {"SimpleStorage": {"num_data_storage_units": 1}}}))
    yield
    tq.close()
    ray.shutdown()


def make_buffer(mode: str = "sync", refill_fn: Any = None, **kwargs: Any) -> PRSReplayBuffer:
    """Build the sampler as verl's trainer does."""
    cls = load_extern_type("pkg://verl_kernel.sampler.prs", "PRSReplayBuffer")
    sampler_kwargs = OmegaConf.create({"poll_interval_s": 0.01} | kwargs)
    return cls(
        trainer_mode=mode,
        trainer_config=OmegaConf.create({}),
        max_off_policy_threshold=8,
        max_off_policy_strategy="drop",
        sampler_kwargs=sampler_kwargs,
        refill_fn=refill_fn,
    )


def trajectory(*results: EvalResult) -> tuple[list[int], list[TurnRecord]]:
    """A mask of turns of 3, 4, 5... tokens with 2 feedback tokens between them."""
    mask: list[int] = []
    turns = []
    for number, result in enumerate(results):
        mask += [0, 0] if number else []
        turns.append(turn(result, len(mask), len(mask) + 3 + number, reward=1.0))
        mask += [1] * (3 + number)
    return mask, turns


def put(
    partition: str,
    uid: str,
    rows: list[tuple[list[int], list[TurnRecord]]],
    with_turns: bool = True,
    prompt: tuple[int, ...] = (1, 2),
    step: int = 1,
    scores: tuple[float, ...] | None = None,
) -> None:
    fields = []
    for (mask, turns), score in zip(rows, scores or (1.0,) * len(rows), strict=True):
        ours = {"kernel_turns": dump_turns(turns), "kernel_gym_seconds": 3.0, "kernel_generate_seconds": 1.0}
        extra = {"reward_extra_info": {}} | (ours if with_turns else {})
        output = AgentLoopOutput(
            prompt_ids=list(prompt),
            response_ids=[3] * len(mask),
            response_mask=mask,
            reward_score=score,
            metrics=AgentLoopMetrics(),
            extra_fields=extra,
        ).as_dict()
        reference = {"style": "rule", "ground_truth": f"reference of {uid}"}
        fields.append(output | {"loss_mask": output["response_mask"], "uid": uid, "reward_model": reference})
    tq.kv_batch_put(
        keys=[f"{uid}_{session}_0" for session in range(len(rows))],
        partition_id=partition,
        fields=list_of_dict_to_tensordict(fields),
        tags=[{"status": "success", "global_steps": step} for _ in rows],
    )
    tq.kv_put(key=uid, partition_id=partition, tag={"is_prompt": True, "status": "finished", "global_steps": step})


def masks(batch: tq.KVBatchMeta, neutral: str | None = None) -> dict[str, tuple[list[int], list[int]]]:
    data = tq.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask", "loss_mask", "rm_scores"]
    )
    scores = dict(zip(batch.keys, data["rm_scores"].unbind(), strict=True))
    assert all(row.sum() == 1.0 for key, row in scores.items() if key != neutral), "rewards were edited"
    rows = zip(data["response_mask"].unbind(), data["loss_mask"].unbind(), strict=True)
    return {key: (a.tolist(), b.tolist()) for key, (a, b) in zip(batch.keys, rows, strict=True)}


def clear(batch: tq.KVBatchMeta) -> None:
    tq.kv_clear(keys=batch.keys, partition_id=batch.partition_id)


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_rejected_turns_leave_both_masks_and_nothing_else(queue: None, mode: str) -> None:
    put("train", f"u{mode.replace('_', '')}", [trajectory(FAST, LAZY), trajectory(LAZY, failed()), trajectory(FAST)])
    batch, metrics = make_buffer(mode).sample(global_steps=1, partition_id="train", batch_size=1)
    found = {key.split("_")[1]: value for key, value in masks(batch).items()}
    clear(batch)
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
    put("train", "u1", [trajectory(LAZY, better), trajectory(LAZY)], scores=(3.0, 1.0))
    buffer = make_buffer(mode)
    batch, metrics = buffer.sample(1, "train", 1)
    found = masks(batch, neutral="u1_0_0")
    advantages = {
        name: advantages_of(batch, name)
        for name in ("trloo", "turn_grpo", "rloo", "grpo", "reinforce_plus_plus_baseline")
    }
    clear(batch)
    assert found == {"u1_0_0": ([0, 0, 0, 0, 0, 1, 1, 1, 1],) * 2, "u1_1_0": ([0, 0, 0],) * 2}
    assert metrics["prs/neutral_step"] == 1
    assert metrics["prs/rejected_turns"] == 3
    assert all(isinstance(value, float) and math.isfinite(value) for value in metrics.values())
    assert "all 3 turns were rejected" in caplog.text and "1 such steps" in caplog.text
    for name, advantage in advantages.items():
        assert advantage.isfinite().all() and not advantage.any(), name


def advantages_of(batch: tq.KVBatchMeta, estimator: str) -> torch.Tensor:
    """What the trainer would compute for the batch."""
    names = ["uid", "response_mask", "rm_scores"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
    padded = {name: torch.nested.to_padded_tensor(data[name], 0) for name in names[1:]}
    advantages, _ = get_adv_estimator_fn(estimator)(
        token_level_rewards=padded["rm_scores"],
        response_mask=padded["response_mask"],
        index=np.array([getattr(uid, "data", uid) for uid in data["uid"]], dtype=object),
        config=AlgoConfig(adv_estimator=estimator),
    )
    return advantages


@pytest.mark.parametrize(("partition", "enabled"), [("val", True), ("train", False)])
def test_validation_and_a_disabled_sampler_keep_everything(queue: None, partition: str, enabled: bool) -> None:
    put(partition, "u2", [trajectory(LAZY, LAZY)])
    batch, metrics = make_buffer(enabled=enabled).sample(1, partition, 1)
    found = masks(batch)
    clear(batch)
    assert found == {"u2_0_0": ([1, 1, 1, 0, 0, 1, 1, 1, 1],) * 2}
    assert not [name for name in metrics if name.startswith("prs/")]
    assert ("kernel/correct_rate" in metrics) == (partition == "train")


def test_rows_of_other_agent_loops_pass_through(queue: None) -> None:
    put("train", "u3", [trajectory(LAZY)], with_turns=False)
    batch, metrics = make_buffer().sample(1, "train", 1)
    found = masks(batch)
    clear(batch)
    assert found == {"u3_0_0": ([1, 1, 1],) * 2}
    assert metrics == {"prs/neutral_step": 0.0}


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
    clear(batch)
    # Geometric means of coverage: 0.21, 0.43, 0.1, none.
    assert [any(mask) for mask in found] == [False, True, False, True]
    assert found[1] == [1, 1, 1, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1]
    assert metrics["prs/rejected_trajectories"] == 2 and metrics["prs/rejected_turns"] == 4


TIED = [([1, 1, 1], [turn(FAST, 0, 3, reward=1.0)])] * 2
TOLD_APART = [([1, 1, 1], [turn(FAST, 0, 3, reward=reward)]) for reward in (1.0, 2.0)]


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_flat_prompts_leave_the_batch(queue: None, mode: str) -> None:
    for uid, rows in (("d1", TIED), ("d2", TOLD_APART), ("d3", TIED)):
        put("train", uid, rows)
    batch, metrics = make_buffer(mode, group_filter="drop").sample(1, "train", 3)
    assert sorted(batch.keys) == ["d2_0_0", "d2_1_0"] and len(batch.tags) == 2
    assert metrics["groups/dropped"] == 2 and metrics["groups/flat_fraction"] == pytest.approx(2 / 3)
    left = {key for items in (tq.kv_list() or {}).values() for key in items}
    assert left == set(batch.keys)
    clear(batch)


def test_a_batch_of_flat_prompts_stays_whole(queue: None) -> None:
    put("train", "e1", TIED)
    batch, metrics = make_buffer(group_filter="drop").sample(1, "train", 1)
    clear(batch)
    assert len(batch.keys) == 2
    assert metrics["groups/dropped"] == 0 and metrics["groups/flat_fraction"] == 1


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
    clear(batch)
    # verl asks for more than it evicted and takes any three of those that are left.
    assert len(uids) == 3 and not uids & {"f1", "f3"}
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
    tq.kv_clear(keys=[f"{uid}{end}" for uid in ("h1", "h2") for end in ("", "_0_0", "_1_0")], partition_id="train")


@pytest.mark.parametrize("mode", ["sync", "colocate_async"])
def test_a_policy_that_knows_one_answer_does_not_refill_for_ever(queue: None, mode: str) -> None:
    made = []

    def refill(count: int) -> None:
        for _ in range(count):
            made.append(f"g{len(made)}")
            put("train", made[-1], TIED)

    refill(2)
    batch, metrics = make_buffer(mode, refill, group_filter="refill", group_refills=2).sample(1, "train", 2)
    clear(batch)
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
    resumed = make_buffer(best_kernels=str(path))
    assert sampled(resumed, "k4", 3, 2.5) == [(1, 2, 2.0), (3, 2, 2.5)]
    assert sampled(make_buffer(best_kernels=str(path)), "k5", 1, 1.1) == [(1, 2, 1.1)]
