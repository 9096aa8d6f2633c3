# SPDX-License-Identifier: Apache-2.0
"""The sampler against a real TransferQueue, filled the way verl's agent loop worker fills it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import ray
import transfer_queue as tq
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.trainer.ppo.v1.utils import MetricsAggregator
from verl.utils.import_utils import load_extern_type
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from tests.reward.results import correct, failed, turn
from verl_kernel.env.result import EvalResult
from verl_kernel.errors import ConfigError
from verl_kernel.reward.record import TurnRecord, dump_turns
from verl_kernel.sampler.prs import PRSReplayBuffer

FAST, LAZY = correct(2.0, 0.9), correct(1.0, 0.1)


@pytest.fixture(scope="module")
def queue() -> Iterator[None]:
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


def put(partition: str, uid: str, rows: list[tuple[list[int], list[TurnRecord]]], with_turns: bool = True) -> None:
    fields = []
    for mask, turns in rows:
        extra = {"reward_extra_info": {}} | ({"kernel_turns": dump_turns(turns)} if with_turns else {})
        output = AgentLoopOutput(
            prompt_ids=[1, 2],
            response_ids=[3] * len(mask),
            response_mask=mask,
            reward_score=1.0,
            metrics=AgentLoopMetrics(),
            extra_fields=extra,
        ).as_dict()
        fields.append(output | {"loss_mask": output["response_mask"]})
    tq.kv_batch_put(
        keys=[f"{uid}_{session}_0" for session in range(len(rows))],
        partition_id=partition,
        fields=list_of_dict_to_tensordict(fields),
        tags=[{"status": "success"} for _ in rows],
    )
    tq.kv_put(key=uid, partition_id=partition, tag={"is_prompt": True, "status": "finished", "global_steps": 1})


def masks(batch: tq.KVBatchMeta) -> dict[str, tuple[list[int], list[int]]]:
    data = tq.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask", "loss_mask", "rm_scores"]
    )
    assert all(row.sum() == 1.0 for row in data["rm_scores"].unbind()), "rewards were edited"
    rows = zip(data["response_mask"].unbind(), data["loss_mask"].unbind(), strict=True)
    return {key: (a.tolist(), b.tolist()) for key, (a, b) in zip(batch.keys, rows, strict=True)}


def clear(batch: tq.KVBatchMeta) -> None:
    tq.kv_clear(keys=batch.keys, partition_id=batch.partition_id)


@pytest.mark.ray
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
    assert metrics["prs/forced_keep"] == 0
    assert metrics["kernel/correct_rate"] == 4 / 5
    aggregator = MetricsAggregator()
    aggregator.add_step_metrics(metrics, sample_count=len(batch.keys))
    assert aggregator.get_aggregated_metrics() == pytest.approx(metrics)


@pytest.mark.ray
def test_a_batch_of_lazy_kernels_keeps_its_best_turn(queue: None) -> None:
    better = correct(1.0, 0.2)
    put("train", "u1", [trajectory(LAZY, better), trajectory(LAZY)])
    batch, metrics = make_buffer().sample(1, "train", 1)
    found = masks(batch)
    clear(batch)
    assert found == {"u1_0_0": ([0, 0, 0, 0, 0, 1, 1, 1, 1],) * 2, "u1_1_0": ([0, 0, 0],) * 2}
    assert metrics["prs/forced_keep"] == 1
    assert metrics["prs/rejected_turns"] == 2


@pytest.mark.ray
@pytest.mark.parametrize(("partition", "enabled"), [("val", True), ("train", False)])
def test_validation_and_a_disabled_sampler_keep_everything(queue: None, partition: str, enabled: bool) -> None:
    put(partition, "u2", [trajectory(LAZY, LAZY)])
    batch, metrics = make_buffer(enabled=enabled).sample(1, partition, 1)
    found = masks(batch)
    clear(batch)
    assert found == {"u2_0_0": ([1, 1, 1, 0, 0, 1, 1, 1, 1],) * 2}
    assert not [name for name in metrics if name.startswith("prs/")]
    assert ("kernel/correct_rate" in metrics) == (partition == "train")


@pytest.mark.ray
def test_rows_of_other_agent_loops_pass_through(queue: None) -> None:
    put("train", "u3", [trajectory(LAZY)], with_turns=False)
    batch, metrics = make_buffer().sample(1, "train", 1)
    found = masks(batch)
    clear(batch)
    assert found == {"u3_0_0": ([1, 1, 1],) * 2}
    assert metrics == {"prs/forced_keep": 0.0}


@pytest.mark.ray
def test_draws_do_not_depend_on_what_else_is_in_the_batch(queue: None) -> None:
    unsure = [trajectory(correct(1.0, 0.35)) for _ in range(12)]
    together = []
    for other in ("u0", "u9"):
        put("train", other, [trajectory(FAST)])
        put("train", "u5", unsure)
        batch, _ = make_buffer(seed=7).sample(3, "train", 2)
        together.append({key: mask for key, mask in masks(batch).items() if key.startswith("u5")})
        clear(batch)
    assert together[0] == together[1]
    assert {tuple(mask[0]) for mask in together[0].values()} == {(0, 0, 0), (1, 1, 1)}


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
