# SPDX-License-Identifier: Apache-2.0
"""Pins every name and signature of verl that this package leans on.

A failure here after an upgrade of verl says what moved, before a training run finds out. One test a pin.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import verl
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf

VERL = Path(verl.__file__).parent


def parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def source_of(path: str, *names: str) -> ast.AST:
    """The definition `names` (outermost first) of a verl file, read without importing it."""
    node: ast.AST = ast.parse((VERL / path).read_text())
    for name in names:
        node = next(child for child in ast.walk(node) if getattr(child, "name", None) == name)
    return node


def argument_names(function: ast.AST) -> list[str]:
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    return [argument.arg for argument in function.args.args]


@pytest.fixture(scope="module")
def config() -> DictConfig:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer")


# The plugin.


def test_verl_is_a_version_we_claim_to_support() -> None:
    major, minor = verl.__version__.split(".")[:2]
    assert (major, minor) == ("0", "9")


def test_verl_loads_entry_points_of_the_group_we_declare() -> None:
    source = (VERL / "__init__.py").read_text()
    assert 'group="verl.plugins"' in source
    assert "VERL_USE_EXTERNAL_PLUGINS" in source


# Advantage estimators.


def test_estimators_register_in_a_dict_by_name() -> None:
    from verl.trainer.ppo import core_algos

    assert isinstance(core_algos.ADV_ESTIMATOR_REGISTRY, dict)
    assert parameters(core_algos.register_adv_est) == ["name_or_enum"]
    assert core_algos.get_adv_estimator_fn("rloo") is core_algos.ADV_ESTIMATOR_REGISTRY["rloo"]


def test_estimators_are_called_with_rewards_mask_config_and_uid_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from verl.protocol import DataProto
    from verl.trainer.ppo import core_algos
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

    seen: dict[str, Any] = {}

    def spy(**kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        seen.update(kwargs)
        return kwargs["token_level_rewards"], kwargs["token_level_rewards"]

    monkeypatch.setitem(core_algos.ADV_ESTIMATOR_REGISTRY, "spy", spy)
    data = DataProto.from_dict(
        {"token_level_rewards": torch.zeros(2, 3), "response_mask": torch.ones(2, 3)},
        {"uid": np.array(["a", "a"], dtype=object)},
    )
    algorithm = OmegaConf.create({"adv_estimator": "spy"})
    out = compute_advantage_for_multi_trajectories(data, ["a_0_0", "a_1_0"], adv_estimator="spy", config=algorithm)
    assert set(seen) == {"token_level_rewards", "response_mask", "config", "index"}
    assert seen["config"] is algorithm
    assert "advantages" in out.batch and "returns" in out.batch


def test_policy_losses_register_in_a_dict_and_are_handed_the_rollouts_weights() -> None:
    from verl.trainer.ppo import core_algos

    assert isinstance(core_algos.POLICY_LOSS_REGISTRY, dict)
    assert parameters(core_algos.compute_policy_loss_vanilla) == [
        *("old_log_prob", "log_prob", "advantages", "response_mask", "loss_agg_mode", "config", "rollout_is_weights")
    ]
    loss = ast.unparse(source_of("workers/utils/losses.py", "ppo_loss"))
    assert "get_policy_loss_fn(loss_mode)" in loss and "rollout_is_weights=rollout_is_weights" in loss


def test_the_actors_nodes_become_the_classes_that_they_name(config: DictConfig) -> None:
    assert config.actor_rollout_ref.actor.policy_loss._target_ == "verl.workers.config.PolicyLossConfig"
    worker = ast.unparse(source_of("workers/engine_workers.py", "ActorRolloutRefWorker"))
    assert "omega_conf_to_dataclass(self.config.actor)" in worker


def test_the_algorithm_node_takes_a_node_of_ours_and_has_the_keys_we_read(config: DictConfig) -> None:
    assert {"adv_estimator", "gamma", "use_kl_in_reward", "rollout_correction"} <= set(config.algorithm)
    assert "use_kl_loss" in config.actor_rollout_ref.actor
    with initialize_config_module("verl.trainer.config", version_base=None):
        assert compose("ppo_trainer", overrides=["+algorithm.trloo.gamma=0.5"]).algorithm.trloo.gamma == 0.5


def test_loss_aggregation_takes_the_scale_of_the_recipe() -> None:
    from verl.trainer.ppo.core_algos import agg_loss

    loss = agg_loss(
        loss_mat=torch.ones(2, 4),
        loss_mask=torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0]]),
        loss_agg_mode="seq-mean-token-sum-norm",
        dp_size=1,
        batch_num_tokens=2,
        global_batch_size=2,
        loss_scale_factor=10,
    )
    assert loss.item() == pytest.approx(2 / 2 / 10)


def test_policy_losses_register_by_name() -> None:
    from verl.trainer.ppo.core_algos import get_policy_loss_fn, register_policy_loss

    assert parameters(register_policy_loss) == ["name"]
    assert callable(get_policy_loss_fn("vanilla"))


# Rollout correction.


def test_rollout_correction_has_the_keys_our_presets_set(config: DictConfig) -> None:
    from verl.trainer.config.algorithm import RolloutCorrectionConfig

    keys = {"rollout_is", "rollout_is_threshold", "rollout_rs", "rollout_rs_threshold", "bypass_mode"}
    assert keys <= set(config.algorithm.rollout_correction)
    assert keys <= {field.name for field in dataclasses.fields(RolloutCorrectionConfig)}


def test_rollout_correction_knows_the_statistics_our_presets_use() -> None:
    from verl.trainer.ppo.rollout_corr_helper import SUPPORTED_ROLLOUT_RS_OPTIONS

    assert {"seq_mean_k1", "seq_max_k2"} <= SUPPORTED_ROLLOUT_RS_OPTIONS


def test_the_trainer_skips_the_correction_in_bypass_mode_hence_our_refusal() -> None:
    source = ast.unparse(source_of("trainer/ppo/v1/trainer_base.py", "PPOTrainer", "_compute_advantage"))
    assert "and (not bypass_recomputing_logprobs)" in source


def test_metrics_of_micro_batches_must_be_alike_on_every_rank_hence_our_sums() -> None:
    from verl.utils.metric import AggregationType, Metric

    two, one = Metric(AggregationType.MEAN, 1.0), Metric(AggregationType.MEAN, 1.0)
    two.append(2.0)
    with pytest.raises(ValueError, match="same number of values"):
        Metric.aggregate_dp([two, one])


def test_rollout_correction_refuses_an_empty_mask_hence_the_samplers_neutral_step() -> None:
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask

    with pytest.raises(ValueError, match="at least one valid token"):
        compute_rollout_correction_and_rejection_mask(torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 2))


# Agent loops.


def test_agent_loop_output_has_the_fields_a_trajectory_fills() -> None:
    from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

    assert {
        "prompt_ids",
        "response_ids",
        "response_mask",
        "response_logprobs",
        "reward_score",
        "num_turns",
        "metrics",
        "extra_fields",
    } <= set(AgentLoopOutput.model_fields)


def test_agent_loop_output_becomes_the_row_our_subclass_edits() -> None:
    from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

    row = AgentLoopOutput(
        prompt_ids=[1],
        response_ids=[2, 3],
        response_mask=[1, 0],
        response_logprobs=[-1.0, 0.0],
        reward_score=0.5,
        metrics=AgentLoopMetrics(),
        extra_fields={"kernel_turns": "[]"},
    ).as_dict()
    assert row["rm_scores"].tolist() == [0, 0.5]
    assert row["rm_scores"].dtype is torch.float32
    assert row["response_mask"].dtype is torch.int64
    assert row["rollout_log_probs"].tolist() == [-1.0, 0.0]
    assert row["extra_fields"]["kernel_turns"] == "[]"
    assert {"prompts", "responses"} <= set(row)


def test_agent_loops_are_built_and_run_as_ours_expects() -> None:
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase

    assert {"trainer_config", "server_manager", "tokenizer", "data_config", "hf_model_type", "kwargs"} <= set(
        parameters(AgentLoopBase.__init__)
    )
    assert parameters(AgentLoopBase.run) == ["self", "sampling_params", "kwargs"]
    assert inspect.iscoroutinefunction(AgentLoopBase.run)


def test_agent_loops_extend_a_conversation_by_tokens() -> None:
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase

    assert parameters(AgentLoopBase.ct_build_initial_tokens)[:2] == ["self", "messages"]
    assert parameters(AgentLoopBase.ct_merge_assistant_token)[1:] == [
        "runtime_token_ids",
        "assistant_token_ids",
        "response_mask",
        "response_logprobs",
        "assistant_logprobs",
    ]
    assert parameters(AgentLoopBase.ct_merge_context_msg)[1:6] == [
        "previous_messages",
        "updated_messages",
        "runtime_token_ids",
        "response_mask",
        "response_logprobs",
    ]


def test_agent_loops_know_the_templates_options_and_hand_stop_tokens_to_the_engine() -> None:
    loops = "experimental/agent_loop"
    init = ast.unparse(source_of(f"{loops}/agent_loop.py", "AgentLoopBase", "__init__"))
    assert "self.apply_chat_template_kwargs = self.data_config.get('apply_chat_template_kwargs', {})" in init
    assert "'stop_token_ids': stop_token_ids" in ast.unparse(source_of(f"{loops}/tool_agent_loop.py", "ToolAgentLoop"))
    server = ast.unparse(source_of("workers/rollout/vllm_rollout/vllm_async_server.py", "vLLMHttpServer", "generate"))
    assert "SamplingParams(max_tokens=max_tokens, **sampling_params)" in server


def test_a_models_tokenizer_and_chat_template_are_found_as_the_check_finds_them(config: DictConfig) -> None:
    from verl.utils import hf_tokenizer

    assert parameters(hf_tokenizer) == ["name_or_path", "correct_pad_token", "correct_gemma2", "kwargs"]
    assert {"path", "tokenizer_path", "custom_chat_template", "trust_remote_code"} <= set(
        config.actor_rollout_ref.model
    )
    model = ast.unparse(source_of("workers/config/model.py", "HFModelConfig"))
    assert "self.tokenizer.chat_template = self.custom_chat_template" in model


def test_agent_loops_register_as_a_target_by_name() -> None:
    from verl.experimental.agent_loop import agent_loop

    assert parameters(agent_loop.register) == ["agent_name"]
    assert agent_loop._agent_loop_registry["single_turn_agent"]["_target_"].endswith("SingleTurnAgentLoop")


def test_agent_loop_worker_writes_loss_mask_as_the_twin_of_response_mask() -> None:
    source = ast.unparse(source_of("trainer/ppo/v1/agent_loop_tq.py", "_agent_loop_postprocess"))
    assert "field['loss_mask'] = field['response_mask']" in source
    assert "f'{uid}_{session_id}_{i}'" in source


def test_agent_loop_managers_are_chosen_by_name_and_told_of_validation(config: DictConfig) -> None:
    from verl.trainer.ppo.v1 import AgentLoopManagerTQ
    from verl.workers.config.rollout import AgentLoopConfig

    assert parameters(AgentLoopManagerTQ.generate_sequences) == ["self", "prompts"]
    assert "agent_loop_manager_class" in {field.name for field in dataclasses.fields(AgentLoopConfig)}
    start = ast.unparse(source_of("trainer/main_ppo.py", "TaskRunnerV1", "init_agent_loop_manager"))
    assert "load_class_from_fqn(manager_class_fqn" in start
    validate = ast.unparse(source_of("trainer/ppo/v1/trainer_base.py", "PPOTrainer", "_validate"))
    assert "assign_non_tensor_data(batch, 'validate', True)" in validate


def test_a_failed_rollout_leaves_its_prompt_a_failure_and_the_others_in_place() -> None:
    source = ast.unparse(source_of("trainer/ppo/v1/agent_loop_tq.py", "_run_prompt"))
    assert "_settle_session_tasks(tasks)" in source and "status = 'failure'" in source


# Rewards.


def test_reward_managers_are_built_and_called_as_ours_expects() -> None:
    from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

    assert parameters(RewardManagerBase.__init__)[:4] == ["self", "config", "tokenizer", "compute_score"]
    assert parameters(RewardManagerBase.run_single) == ["self", "data"]
    assert inspect.iscoroutinefunction(RewardManagerBase.run_single)


def test_reward_managers_register_in_a_dict_by_name() -> None:
    from verl.experimental.reward_loop.reward_manager import register, registry

    assert isinstance(registry.REWARD_MANAGER, dict)
    assert parameters(register) == ["name"]
    assert registry.get_reward_manager_cls("naive") is registry.REWARD_MANAGER["naive"]


def test_a_reward_already_set_by_the_agent_loop_is_not_computed_again() -> None:
    source = ast.unparse(source_of("experimental/agent_loop/agent_loop.py", "_compute_score"))
    assert "final_output.reward_score is None" in source


def test_reward_managers_see_the_rows_fields_and_what_they_say_reaches_the_sampler() -> None:
    source = ast.unparse(source_of("experimental/agent_loop/agent_loop.py", "_compute_score"))
    assert "**{k: np.array([v] * n) for (k, v) in kwargs.items()}" in source.replace("for k, v in", "for (k, v) in")
    assert "final_output.extra_fields['reward_extra_info'] = result['reward_extra_info']" in source


# The sampler.


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
    assert hasattr(ReplayBufferAsync, "wait_for_sampleable") and hasattr(ReplayBufferAsync, "get_sampleable_count")


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


def test_trainer_builds_a_custom_sampler_by_path_and_name(config: DictConfig) -> None:
    from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    from verl_kernel.sampler.prs import PRSReplayBuffer

    trainer = object.__new__(PPOTrainer.__subclasses__()[0])
    trainer.config, trainer.trainer_mode = config.copy(), "colocate_async"
    sampler = trainer.config.trainer.v1.sampler
    sampler.custom_sampler = {"path": "pkg://verl_kernel.sampler.prs", "name": "PRSReplayBuffer"}
    OmegaConf.set_struct(trainer.config, False)
    sampler.sampler_kwargs = {"threshold": 0.5, "poll_interval_s": 0.1}
    buffer = trainer._build_replay_buffer()
    assert isinstance(buffer, PRSReplayBuffer) and isinstance(buffer, ReplayBufferAsync)
    assert buffer.options.threshold == 0.5
    assert buffer.poll_interval == 0.1


def test_metrics_of_sample_reach_the_steps_log() -> None:
    source = ast.unparse(source_of("trainer/ppo/v1/trainer_base.py", "PPOTrainer", "_step_once"))
    assert "batch, off_policy_metrics = self.replay_buffer.sample(" in source
    assert "metrics.update(off_policy_metrics)" in source


def test_trainer_counts_loss_tokens_in_loss_mask() -> None:
    source = ast.unparse(source_of("workers/engine/fsdp/transformer_impl.py"))
    assert "batch_num_tokens = data['loss_mask'].sum()" in source


def test_advantages_are_computed_from_the_masks_and_rewards_in_the_queue() -> None:
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


# The trainer.


def test_bypass_mode_takes_the_samplers_log_probabilities_for_old_ones_and_corrects_nothing() -> None:
    trainer = "trainer/ppo/v1/trainer_base.py"
    source = ast.unparse(source_of(trainer, "PPOTrainer", "_compute_old_log_prob"))
    assert "data['old_log_probs'] = data.pop('rollout_log_probs')" in source
    source = ast.unparse(source_of(trainer, "PPOTrainer", "_compute_advantage"))
    assert "and (not bypass_recomputing_logprobs)" in source


def test_asynchronous_trainers_run_ahead_by_num_warmup_batches(config: DictConfig) -> None:
    for mode, name in (("colocate_async", "PPOTrainerColocateAsync"), ("separate_async", "PPOTrainerSeparateAsync")):
        source = ast.unparse(source_of(f"trainer/ppo/v1/trainer_{mode}.py", name, "on_train_begin"))
        assert f"self._add_async_warmup_batches(self.config.trainer.v1.{mode}.num_warmup_batches)" in source
        assert config.trainer.v1[mode].num_warmup_batches is not None


def test_synchronous_checkpoints_hold_no_queue() -> None:
    source = ast.unparse(source_of("trainer/ppo/v1/trainer_base.py", "PPOTrainer", "_save_checkpoint"))
    assert "if self.trainer_mode != 'sync':\n        tq.save_checkpoint(" in source


def test_trainer_modes_are_registered_under_the_names_recipes_use(config: DictConfig) -> None:
    from verl.trainer.ppo.v1 import get_trainer_cls

    for mode in ("sync", "colocate_async", "separate_async"):
        assert get_trainer_cls(mode).__name__.startswith("PPOTrainer")
        assert mode in config.trainer.v1


def test_main_ppo_starts_from_ppo_trainer_with_the_v1_trainer(config: DictConfig) -> None:
    source = (VERL / "trainer/main_ppo.py").read_text()
    assert '@hydra.main(config_path="config", config_name="ppo_trainer"' in source
    assert "class TaskRunnerV1" in source
    assert config.trainer.use_v1 is True
    assert config.trainer.v1.trainer_mode == "sync"


def test_recipes_find_the_keys_they_override(config: DictConfig) -> None:
    for key in (
        "trainer.v1.sampler.sampler_kwargs",
        "trainer.v1.sampler.custom_sampler.path",
        "trainer.rollout_data_dir",
        "trainer.device",
        "reward.reward_manager.name",
        "reward.num_workers",
        "actor_rollout_ref.rollout.agent.default_agent_loop",
        "actor_rollout_ref.rollout.agent.num_workers",
        "actor_rollout_ref.rollout.calculate_log_probs",
        "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes",
        "actor_rollout_ref.rollout.engine_kwargs.vllm",
        "actor_rollout_ref.actor.loss_agg_mode",
        "actor_rollout_ref.actor.loss_scale_factor",
    ):
        assert OmegaConf.select(config, key, default="missing") != "missing", key


# The CPU platform.


def test_platforms_register_by_name_and_need_no_more_methods_than_ours_has() -> None:
    from verl.plugin.platform.platform_base import PlatformBase
    from verl.plugin.platform.platform_manager import PlatformRegistry

    from verl_kernel.cpu.platform import PlatformCPU

    assert parameters(PlatformRegistry.register) == ["platform"]
    assert callable(PlatformRegistry.get)
    assert issubclass(PlatformCPU, PlatformBase)
    assert not inspect.isabstract(PlatformCPU)


def test_the_platform_is_chosen_by_the_environment() -> None:
    assert "VERL_PLATFORM" in (VERL / "plugin/platform/platform_manager.py").read_text()


def test_engines_register_by_device() -> None:
    from verl.workers.engine.base import EngineRegistry

    assert parameters(EngineRegistry.register)[:3] == ["model_type", "backend", "device"]
    assert parameters(EngineRegistry.get_engine_cls) == ["model_type", "backend"]
    assert isinstance(EngineRegistry._engines, dict)


def test_fsdp2_engine_is_registered_for_language_models() -> None:
    import verl.workers.engine  # noqa: F401  (fills the registry)
    from verl.workers.engine.base import EngineRegistry

    assert "cuda" in EngineRegistry._engines["language_model"]["fsdp2"]


def test_process_groups_start_in_the_function_the_cpu_platform_patches() -> None:
    from verl.utils import distributed

    function = inspect.unwrap(distributed.initialize_global_process_group_ray)
    assert parameters(function) == ["timeout_second", "backend"]
    assert "initialize_global_process_group_ray" in (VERL / "workers/engine_workers.py").read_text()


def test_the_sft_trainer_starts_groups_and_draws_rows_as_we_expect() -> None:
    from verl.utils import distributed

    source = (VERL / "trainer/sft_trainer.py").read_text()
    assert "from verl.utils.distributed import initialize_global_process_group\n" in source
    assert parameters(inspect.unwrap(distributed.initialize_global_process_group)) == ["timeout_second"]
    assert "DistributedSampler(\n            self.train_dataset, shuffle=True, num_replicas=dp_size" in source
    assert "train_sampler.set_epoch(epoch=epoch)" in source


def test_log_probs_have_the_two_fallbacks_the_cpu_platform_swaps() -> None:
    from verl.utils import torch_functional

    for name in ("logprobs_from_logits_v2", "logprobs_from_logits_naive"):
        assert parameters(getattr(torch_functional, name)) == ["logits", "labels"]
    body = source_of("utils/torch_functional.py", "logprobs_from_logits")
    assert "logprobs_from_logits_v2" in {node.id for node in ast.walk(body) if isinstance(node, ast.Name)}


def test_vllms_version_is_asked_of_importlib_metadata() -> None:
    source = (VERL / "third_party/vllm/__init__.py").read_text()
    assert "from importlib.metadata import" in source
    assert "version(pkg)" in source


def test_weights_reach_vllm_through_the_extension_method_the_cpu_overrides() -> None:
    extension = source_of("workers/rollout/vllm_rollout/utils.py", "vLLMColocateWorkerExtension")
    methods = {node.name: node for node in ast.walk(extension) if isinstance(node, ast.FunctionDef)}
    assert argument_names(methods["update_weights_from_ipc"]) == ["self", "peft_config", "base_sync_done", "use_shm"]
    assert "_get_zmq_handle" in methods


def test_weights_arrive_in_buckets() -> None:
    path = "workers/rollout/vllm_rollout/bucketed_weight_transfer.py"
    assert argument_names(source_of(path, "BucketedWeightReceiver", "__init__")) == [
        "self",
        "zmq_handle",
        "device",
        "use_shm",
    ]
    assert argument_names(source_of(path, "BucketedWeightReceiver", "receive_weights"))[1:] == ["on_bucket_received"]


def test_the_worker_extension_is_selected_by_engine_arguments() -> None:
    source = ast.unparse(source_of("workers/rollout/vllm_rollout/vllm_async_server.py"))
    assert "'worker_extension_cls': self._get_worker_extension_cls()" in source
