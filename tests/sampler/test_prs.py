# SPDX-License-Identifier: Apache-2.0
"""The sampler against a queue that is filled the way verl's agent loop worker fills TransferQueue."""

import json
import math
from collections.abc import Callable

import pytest
import torch
import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.trainer.ppo.v1.utils import MetricsAggregator
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from tests.reward.results import correct, failed
from tests.sampler.trajectories import advantages_of, clear, make_buffer, masks, modes, put, queues, trajectory
from tests.sentences import refused
from verl_kernel.advantage.turns import ZERO_REWARD, place_turn_rewards
from verl_kernel.errors import ConfigError, DataError, InfraError
from verl_kernel.reporting.kernels import read_kernels
from verl_kernel.reward import first_validation
from verl_kernel.reward.record import TurnRecord
from verl_kernel.sampler.prs import PRSReplayBuffer

FAST, LAZY = correct(2.0, 0.9), correct(1.0, 0.1)
LOST = failed("infra_error", correctness=None)
UNSURE = [trajectory(correct(1.0, 0.35)) for _ in range(12)]
ESTIMATORS = ("trloo", "turn_grpo", "rloo", "grpo", "reinforce_plus_plus_baseline")


@queues
@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_rejected_turns_leave_both_masks_and_nothing_else(queue, mode):
    put("train", f"u{mode.replace('_', '')}", [trajectory(FAST, LAZY), trajectory(LAZY, failed()), trajectory(FAST)])
    batch, metrics = make_buffer(mode).sample(global_steps=1, partition_id="train", batch_size=1)
    found = {key.split("_")[1]: value for key, value in masks(batch).items()}
    assert found == {
        "0": ([1, 1, 1, 0, 0, 0, 0, 0, 0],) * 2, "1": ([0, 0, 0, 0, 0, 1, 1, 1, 1],) * 2, "2": ([1, 1, 1],) * 2,
    }  # fmt: skip
    assert (metrics["prs/rejected_turns"], metrics["prs/kept_probability"]) == (2, 0.5)
    assert (metrics["prs/neutral_step"], metrics["kernel/correct_rate"]) == (0, 4 / 5)
    assert (metrics["prs/kept/correct_rate"], metrics["prs/rejected/correct_rate"]) == (2 / 3, 1)
    assert (metrics["prs/kept/speedup/mean"], metrics["prs/rejected/speedup/mean"]) == (2, 1)
    assert (metrics["kernel/gym_seconds/max"], metrics["kernel/gym_share"]) == (3, 0.75)
    aggregator = MetricsAggregator()
    aggregator.add_step_metrics(metrics, sample_count=len(batch.keys))
    assert aggregator.get_aggregated_metrics() == pytest.approx(metrics)


@modes
def test_a_batch_of_lazy_kernels_is_a_neutral_step(queue, mode, caplog):
    put("train", "u1", [trajectory(LAZY, correct(1.0, 0.2)), trajectory(LAZY)])
    batch, metrics = make_buffer(mode).sample(1, "train", 1)
    found = masks(batch, neutral="u1_0_0")
    advantages = {name: advantages_of(batch, name) for name in (*ESTIMATORS, "rsft")}
    assert found == {"u1_0_0": ([0, 0, 0, 0, 0, 1, 1, 1, 1],) * 2, "u1_1_0": ([0, 0, 0],) * 2}
    assert (metrics["prs/neutral_step"], metrics["prs/rejected_turns"]) == (1, 3)
    assert all(isinstance(value, float) and math.isfinite(value) for value in metrics.values())
    assert "all 3 turns were rejected" in caplog.text
    assert "1 such steps" in caplog.text
    for name, advantage in advantages.items():
        assert advantage.isfinite().all(), name
        assert not advantage.any(), name


@pytest.mark.parametrize(
    ("partition", "enabled", "kept"), [("val", True, ["u2_0_0", "u2_1_0"]), ("train", False, ["u2_0_0"])]
)
def test_validation_and_a_disabled_sampler_keep_what_is_judged(queue, partition, enabled, kept):
    """What was not judged leaves a batch of training in any case."""
    first_validation.begin()
    put(partition, "u2", [trajectory(LAZY, LAZY), trajectory(LOST)])
    batch, metrics = make_buffer(enabled=enabled).sample(1, partition, 1)
    assert sorted(batch.keys) == kept
    assert masks(batch)["u2_0_0"] == ([1, 1, 1, 0, 0, 1, 1, 1, 1],) * 2
    assert not [name for name in metrics if name.startswith("prs/")]
    assert ("kernel/correct_rate" in metrics) == (partition == "train")
    if partition == "val":
        with pytest.raises(ConfigError, match="0 of the 3 answers of the first validation"):
            first_validation.refuse()


def test_rows_of_other_agent_loops_pass_through(queue):
    put("train", "u3", [trajectory(LAZY)], with_turns=False)
    batch, metrics = make_buffer().sample(1, "train", 1)
    assert masks(batch) == {"u3_0_0": ([1, 1, 1],) * 2}
    assert metrics == {"prs/neutral_step": 0.0, "kernel/unjudged_fraction": 0.0}


def drawn(mode: str, uids: tuple[str, ...], global_steps: int = 3, seed: int = 7) -> dict[str, list[bool]]:
    """Per prompt, which of its rollouts were kept; the n-th uid has prompt n, the tasks come in the order of uids."""
    for number, uid in enumerate(uids):
        put("train", uid, UNSURE, prompt=(number, 5), step=3)
    batch, _ = make_buffer(mode, seed=seed).sample(global_steps, "train", len(uids))
    found = masks(batch)
    clear(batch)
    return {uid: [any(found[f"{uid}_{session}_0"][0]) for session in range(len(UNSURE))] for uid in uids}


def test_draws_repeat_over_runs_orders_and_modes(queue):
    first = drawn("sync", ("a", "b", "c"))
    again = drawn("sync", ("x9", "x1", "x5"))
    alone = drawn("sync", ("z",))
    late = drawn("colocate_async", ("q", "r", "s"), global_steps=5)
    assert list(first.values()) == list(again.values()) == list(late.values())
    assert alone["z"] == first["a"]
    assert first["a"] != first["b"] != first["c"]
    assert {kept for rows in first.values() for kept in rows} == {True, False}
    assert list(drawn("sync", ("a", "b", "c"), seed=8).values()) != list(first.values())


def test_a_trajectory_is_kept_or_rejected_as_a_whole(queue):
    barely = correct(1.0, 0.05)
    turns = ((FAST, barely), (FAST, LAZY, FAST), (LAZY, failed()), (failed(),))
    put("train", "u6", [trajectory(*results) for results in turns])
    batch, metrics = make_buffer(level="trajectory", width=0.0).sample(1, "train", 1)
    found = [masks(batch)[f"u6_{session}_0"][0] for session in range(4)]
    # Geometric means of coverage: 0.21, 0.43, 0.1, none.
    assert [any(mask) for mask in found] == [False, True, False, True]
    assert found[1] == [1, 1, 1, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1]
    assert (metrics["prs/rejected_trajectories"], metrics["prs/rejected_turns"]) == (2, 4)


@modes
def test_a_subclass_of_the_sampler_works_in_every_mode(queue, mode):
    class Patient(PRSReplayBuffer):
        def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[tq.KVBatchMeta, dict]:
            batch, metrics = super().sample(global_steps, partition_id, batch_size)
            return batch, metrics | {"patient": 1.0}

    buffer = make_buffer(mode, cls=Patient)
    assert isinstance(buffer, Patient)
    assert isinstance(buffer, ReplayBuffer)
    assert isinstance(buffer, ReplayBufferAsync) == (mode != "sync")
    assert buffer.poll_interval == 0.01
    put("train", "u", [trajectory(LAZY, FAST)])
    batch, metrics = buffer.sample(1, "train", 1)
    assert masks(batch) == {"u_0_0": ([0, 0, 0, 0, 0, 1, 1, 1, 1],) * 2}
    assert metrics["patient"] == metrics["prs/rejected_turns"] == 1


def test_a_bad_sampler_option_stops_the_trainer_at_start():
    with pytest.raises(ConfigError, match=r"sampler_kwargs\.thresold "):
        make_buffer(thresold=0.3)


def test_kernels_that_beat_their_task_are_written_down(queue, tmp_path):
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
    kept = {(line["reference"], line["code"]) for line in read_kernels(path)}
    assert kept == {(f"reference of {uid}", f"code of {uid}") for uid in ("k1", "k3")}
    line = read_kernels(path)[0]  # `verl-kernel best` says where a kernel comes from
    assert line["sample"]
    assert line["env"] == {}
    assert {"sure_speedup", "reference_mode"} <= line.keys()
    assert sampled(make_buffer(best_kernels=str(path)), "k4", 3, 2.5) == [(1, 2, 2.0), (3, 2, 2.5)]
    assert sampled(make_buffer(best_kernels=str(path)), "k5", 1, 1.1) == [(1, 2, 1.1)]


def test_a_surely_faster_kernel_is_written_down(queue, tmp_path):
    path, buffer = tmp_path / "kernels.jsonl", make_buffer(best_kernels=str(tmp_path / "kernels.jsonl"))
    for step, (speedup, low) in enumerate([(3.0, 1.5), (2.5, 2.2), (4.0, 2.0)], 1):
        mask, (turn,) = trajectory(correct(speedup, task_id="relu", speedup_low=low, timing_source="cuda_event"))
        put("train", f"s{step}", [(mask, [turn.model_copy(update={"code": "code"})])], step=step)
        clear(buffer.sample(step, "train", 1)[0])
    assert [(line["step"], line["sure_speedup"]) for line in read_kernels(path)] == [(1, 1.5), (2, 2.2)]


def test_a_resumed_run_writes_its_record_anew_from_its_step_on(queue, tmp_path):
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


def played(*rewards: float | None) -> tuple[list[int], list[TurnRecord]]:
    """A trajectory that earned this in its turns; `None` is a turn that could not be judged."""
    mask, turns = trajectory(*(LOST if reward is None else FAST for reward in rewards))
    earned = (0.0 if reward is None else reward for reward in rewards)
    return mask, [one.model_copy(update={"reward": reward}) for one, reward in zip(turns, earned, strict=True)]


@modes
def test_equal_rollouts_stay_equal_when_a_judge_is_lost(queue, mode):
    put("train", "u", [played(2, 2, 2), played(2, None), played(2, 2, 2)])
    batch, metrics = make_buffer(mode).sample(1, "train", 1)
    assert sorted(batch.keys) == ["u_0_0", "u_2_0"]
    assert len(batch.tags) == 2
    for name in ESTIMATORS:
        assert not advantages_of(batch, name).any(), name
    assert metrics["kernel/unjudged_fraction"] == pytest.approx(1 / 3)
    assert metrics["kernel/infra_error_rate"] == metrics["kernel/status/infra_error"] == 1 / 8
    assert metrics["kernel/turn_2/infra_error_rate"] == pytest.approx(1 / 3)
    assert (metrics["kernel/turn_1/infra_error_rate"], metrics["kernel/turn_2/reward/mean"]) == (0, 2)
    assert set((tq.kv_list() or {})["train"]) == set(batch.keys)


def test_the_others_get_what_they_would_get_alone(queue):
    put("train", "a", [played(1, 3), played(None), played(2, 0), played(0, None)])
    put("train", "b", [played(1, 3), played(2, 0)])
    batch, _ = make_buffer().sample(1, "train", 2)
    assert sorted(batch.keys) == ["a_0_0", "a_2_0", "b_0_0", "b_1_0"]
    found = dict(zip(batch.keys, advantages_of(batch, "trloo"), strict=True))
    assert found["a_0_0"].any()
    assert torch.equal(found["a_0_0"], found["b_0_0"])
    assert torch.equal(found["a_2_0"], found["b_1_0"])


@pytest.mark.parametrize("with_turns", [True, False])
def test_a_loss_in_the_only_turn_is_counted(queue, with_turns):
    put("train", "u", [played(1), played(None), played(1), played(None)], with_turns=with_turns)
    batch, metrics = make_buffer().sample(1, "train", 1)
    assert sorted(batch.keys) == ["u_0_0", "u_2_0"]
    assert metrics["kernel/unjudged_fraction"] == 0.5
    assert metrics.get("kernel/turn_1/infra_error_rate") == (0.5 if with_turns else None)


def test_a_batch_without_one_judged_trajectory_stops_the_run(queue):
    put("train", "u", [played(None), played(1, None)])
    with pytest.raises(InfraError, match="step 4: the gym could judge none of the 2 trajectories.*last checkpoint"):
        make_buffer().sample(4, "train", 1)


def test_a_lost_turn_does_not_make_a_flat_prompt_uneven(queue):
    made = []

    def refill(count: int) -> None:
        for _ in range(count):
            made.append(f"new{len(made)}")
            put("train", made[-1], [played(1), played(2)])

    put("train", "flat", [played(1, 1), played(1, 1), played(1, None)])
    batch, metrics = make_buffer("colocate_async", refill, group_filter="refill").sample(1, "train", 1)
    assert sorted(batch.keys) == ["new0_0_0", "new0_1_0"]
    assert metrics["training/filter_groups/evicted_samples"] == 1


def test_a_prompt_of_which_nothing_was_judged_is_not_flat(queue):
    put("train", "gone", [played(None), played(None)])
    put("train", "told", [played(1), played(2)])
    buffer = make_buffer("colocate_async", lambda count: pytest.fail("nothing is flat"), group_filter="refill")
    batch, _ = buffer.sample(1, "train", 2)
    assert sorted(batch.keys) == ["told_0_0", "told_1_0"]


def halved_without_denormals(scores: torch.Tensor) -> torch.Tensor:
    half = scores * 0.5
    return torch.where(half.abs() < ZERO_REWARD, 0, half)


def with_a_penalty(scores: torch.Tensor) -> torch.Tensor:
    return scores.index_add(0, torch.tensor([1]), torch.tensor([-0.1]))


def pulled_to_the_left(scores: torch.Tensor) -> torch.Tensor:
    return scores.roll(-1)


def summed_up(scores: torch.Tensor) -> torch.Tensor:
    return place_turn_rewards(len(scores), [len(scores)], [float(scores.sum())])


def rewrite(keys: list[str], change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    found = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=["rm_scores"])["rm_scores"].unbind()
    fields = list_of_dict_to_tensordict([{"rm_scores": change(scores)} for scores in found])
    tq.kv_batch_put(keys=keys, partition_id="train", fields=fields)


@pytest.mark.parametrize(
    "change", [torch.Tensor.half, halved_without_denormals, with_a_penalty, pulled_to_the_left, summed_up]
)
@pytest.mark.parametrize("enabled", [True, False])
def test_turns_that_moved_end_the_step(queue, enabled, change):
    put("train", "u", [played(2.0, 0.0), played(0.0, 1.0)])
    rewrite(["u_0_0", "u_1_0"], change)
    said = "step 7: the turns of trajectory u_0_0 end at tokens [3, 9]"
    with refused("float32", "reward term", by=DataError, start=said):
        make_buffer("sync" if enabled else "colocate_async", enabled=enabled).sample(7, "train", 1)


@pytest.mark.parametrize("change", [torch.Tensor.double, torch.Tensor.bfloat16, lambda scores: scores * 2])
def test_a_change_that_leaves_turns_where_they_are_passes(queue, change):
    put("train", "u", [played(2.0, 0.0), played(0.0, 1.0)])
    rewrite(["u_0_0", "u_1_0"], change)
    batch, _ = make_buffer(enabled=False).sample(1, "train", 1)
    assert sorted(batch.keys) == ["u_0_0", "u_1_0"]
