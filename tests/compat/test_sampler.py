# SPDX-License-Identifier: Apache-2.0
"""Pins what the sampler leans on in verl, and what becomes of the rows that it hands on."""

from __future__ import annotations

import ast

from omegaconf import DictConfig, OmegaConf

from tests.compat.pins import parameters, source_of


def test_replay_buffer_takes_what_our_sampler_hands_on() -> None:
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

    given = [
        "trainer_mode",
        "trainer_config",
        "max_off_policy_threshold",
        "max_off_policy_strategy",
        "sampler_kwargs",
        "poll_interval",
        "refill_fn",
    ]
    assert parameters(ReplayBuffer.__init__)[1:8] == given
    assert issubclass(ReplayBufferAsync, ReplayBuffer)
    assert "__init__" not in vars(ReplayBufferAsync)


def test_replay_buffer_samples_by_step_partition_and_size() -> None:
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

    for cls in (ReplayBuffer, ReplayBufferAsync):
        assert parameters(cls.sample) == ["self", "global_steps", "partition_id", "batch_size"]
    assert hasattr(ReplayBufferAsync, "wait_for_sampleable")
    assert hasattr(ReplayBufferAsync, "get_sampleable_count")


def test_replay_buffer_has_the_seam_of_our_group_filter() -> None:
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

    assert parameters(ReplayBuffer._dapo_filtered_keys) == ["self", "partition_id"]
    assert parameters(ReplayBuffer._evict_terminal_groups) == [
        "self",
        "global_steps",
        "partition_id",
        "eviction_reasons",
    ]
    assert parameters(ReplayBuffer._select_prompt_uids) == ["self", "partition_id", "sampleable_keys", "batch_size"]
    seams = {"_dapo_filtered_keys", "_evict_terminal_groups", "_select_prompt_uids"}
    assert not seams & set(vars(ReplayBufferAsync))
    sample = ast.unparse(source_of("trainer/ppo/v1/replay_buffer.py", "ReplayBuffer", "sample"))
    # What the sampler takes out of this very set is not cleared.
    assert "surplus_uids = sampleable_keys - set(selected_prompt_uids)" in sample
    assert {"filter_groups_metric", "train_batch_size", "gen_batch_size"} <= set(parameters(ReplayBuffer.__init__))
    source = ast.unparse(source_of("trainer/ppo/v1/replay_buffer.py"))
    for name in ("_dapo_classification_cache", "finished_keys", "partitions", "prompt_global_steps"):
        assert f"self.{name}[partition_id]" in source


def test_trainer_builds_a_custom_sampler_by_path_and_name(verl_config: DictConfig) -> None:
    from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    from verl_kernel.sampler.prs import PRSReplayBuffer

    trainer = object.__new__(PPOTrainer.__subclasses__()[0])
    trainer.config, trainer.trainer_mode = verl_config.copy(), "colocate_async"
    sampler = trainer.config.trainer.v1.sampler
    sampler.custom_sampler = {"path": "pkg://verl_kernel.sampler.prs", "name": "PRSReplayBuffer"}
    OmegaConf.set_struct(trainer.config, False)
    sampler.sampler_kwargs = {"threshold": 0.5, "poll_interval_s": 0.1}
    buffer = trainer._build_replay_buffer()
    assert isinstance(buffer, PRSReplayBuffer)
    assert isinstance(buffer, ReplayBufferAsync)
    assert buffer.options.threshold == 0.5
    assert buffer.poll_interval == 0.1


def test_metrics_of_sample_reach_the_steps_log() -> None:
    source = ast.unparse(source_of("trainer/ppo/v1/trainer_base.py", "PPOTrainer", "_step_once"))
    assert "batch, off_policy_metrics = self.replay_buffer.sample(" in source
    assert "metrics.update(off_policy_metrics)" in source


def test_trainer_counts_loss_tokens_in_loss_mask() -> None:
    source = ast.unparse(source_of("workers/engine/fsdp/transformer_impl.py"))
    assert "batch_num_tokens = data['loss_mask'].sum()" in source


def test_advantages_come_from_the_queues_masks_and_rewards() -> None:
    source = ast.unparse(source_of("trainer/ppo/v1/trainer_base.py", "PPOTrainer", "_compute_advantage"))
    for field in ("uid", "response_mask", "rm_scores", "rollout_log_probs", "old_log_probs"):
        assert f"'{field}'" in source


def test_padding_rows_have_their_own_uid_and_no_loss_token() -> None:
    from verl.trainer.ppo.padding_utils import construct_minimal_padding_template

    row, tag = construct_minimal_padding_template({}, {}, eos_token_id=0)
    assert row["response_mask"].tolist() == row["loss_mask"].tolist() == [0]
    assert row["rm_scores"].tolist() == [0]
    assert tag["is_padding"] is True
    assert "uuid" in ast.unparse(source_of("trainer/ppo/padding_utils.py", "upsample_batch_to_divisible_size"))


def test_transfer_queue_reads_and_writes_fields_by_key() -> None:
    import transfer_queue as tq

    assert parameters(tq.kv_batch_get) == ["keys", "partition_id", "select_fields"]
    assert {"keys", "partition_id", "fields", "tags"} <= set(parameters(tq.kv_batch_put))
    assert {"keys", "tags", "partition_id", "fields", "extra_info"} <= set(parameters(tq.KVBatchMeta))
