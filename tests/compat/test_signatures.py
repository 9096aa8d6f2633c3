# SPDX-License-Identifier: Apache-2.0
"""Pins the parameters of what we call, replace or extend in verl and beside it."""

import dataclasses
import inspect

import pytest

from tests.compat.pins import found, parameters

TQ = "verl.trainer.ppo.v1.agent_loop_tq"
BUFFER = "verl.trainer.ppo.v1.replay_buffer:ReplayBuffer"
LOOP = "verl.experimental.agent_loop.agent_loop:AgentLoopBase"
REWARD = "verl.experimental.reward_loop.reward_manager"
TOOL = "verl.tools.base_tool:BaseTool"

SIGNATURES = {
    # The platform for machines without a GPU.
    "verl.plugin.platform.platform_manager:PlatformRegistry.register": "platform",
    "verl.workers.engine.base:EngineRegistry.register": "model_type backend device ...",
    "verl.workers.engine.base:EngineRegistry.get_engine_cls": "model_type backend",
    "verl.utils.distributed:initialize_global_process_group_ray": "timeout_second backend",
    "verl.utils.distributed:initialize_global_process_group": "timeout_second",
    "verl.utils.torch_functional:logprobs_from_logits_v2": "logits labels",
    "verl.utils.torch_functional:logprobs_from_logits_naive": "logits labels",
    # Estimators and losses.
    "verl.trainer.ppo.core_algos:register_adv_est": "name_or_enum",
    "verl.trainer.ppo.core_algos:register_policy_loss": "name",
    "verl.trainer.ppo.core_algos:compute_policy_loss_vanilla": (
        "old_log_prob log_prob advantages response_mask loss_agg_mode config rollout_is_weights"
    ),
    "verl.trainer.ppo.core_algos:agg_loss": (
        "loss_mat loss_mask loss_agg_mode dp_size batch_num_tokens global_batch_size loss_scale_factor"
    ),
    # The agent loop, its manager, and the worker that Reinforce-Ada extends.
    f"{LOOP}.__init__": "... trainer_config server_manager tokenizer data_config hf_model_type kwargs",
    f"{LOOP}.run": "self sampling_params kwargs",
    f"{LOOP}.ct_build_initial_tokens": "self messages ...",
    f"{LOOP}.ct_merge_assistant_token": (
        "self runtime_token_ids assistant_token_ids response_mask response_logprobs assistant_logprobs"
    ),
    "verl.experimental.agent_loop.agent_loop:register": "agent_name",
    f"{TQ}:AgentLoopManagerTQ.generate_sequences": "self prompts",
    f"{TQ}:AgentLoopWorkerTQ._run_prompt": "self prompt sampling_params trajectory trace",
    f"{TQ}:AgentLoopWorkerTQ._agent_loop_postprocess": "self output validate kwargs",
    f"{TQ}:AgentLoopWorkerTQ._compute_score": "self outputs kwargs",
    f"{TQ}:AgentLoopWorkerTQ._run_agent_loop": "self sampling_params trajectory agent_name trace kwargs",
    "verl.utils:hf_tokenizer": "name_or_path correct_pad_token correct_gemma2 kwargs",
    # Rewards and tools.
    f"{REWARD}.base:RewardManagerBase.__init__": "self config tokenizer compute_score ...",
    f"{REWARD}.base:RewardManagerBase.run_single": "self data",
    f"{REWARD}:register": "name",
    f"{TOOL}.__init__": "self config tool_schema",
    f"{TOOL}.create": "self instance_id kwargs",
    f"{TOOL}.execute": "self instance_id parameters kwargs",
    f"{TOOL}.release": "self instance_id kwargs",
    # The sampler and the queue of rows.
    f"{BUFFER}.__init__": (
        "self trainer_mode trainer_config max_off_policy_threshold max_off_policy_strategy sampler_kwargs "
        "poll_interval refill_fn ... filter_groups_metric train_batch_size gen_batch_size"
    ),
    f"{BUFFER}.sample": "self global_steps partition_id batch_size",
    f"{BUFFER}Async.sample": "self global_steps partition_id batch_size",
    f"{BUFFER}._dapo_filtered_keys": "self partition_id",
    f"{BUFFER}._evict_terminal_groups": "self global_steps partition_id eviction_reasons",
    f"{BUFFER}._select_prompt_uids": "self partition_id sampleable_keys batch_size",
    f"{BUFFER}._materialize_batch": "self partition_id selected_prompt_uids partition_snapshot",
    "transfer_queue:kv_batch_get": "keys partition_id select_fields",
    "transfer_queue:kv_batch_put": "... keys partition_id fields tags",
    "transfer_queue:KVBatchMeta": "... keys tags partition_id fields extra_info",
    # ReMix, and the start.
    "verl.utils.dataset.multiturn_sft_dataset:MultiTurnSFTDataset": "parquet_files tokenizer config ...",
    "hydra.experimental.callback:Callback.on_run_start": "self config kwargs",
    "ray._private.runtime_env.context:RuntimeEnvContext": (
        "command_prefix env_vars py_executable override_worker_entrypoint java_jars"
    ),
}
"""Parameters by what takes them; after dots, parameters that stand somewhere, with others between them."""


@pytest.mark.parametrize("name", SIGNATURES)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_it_takes_what_we_give_it(name):
    first, dots, anywhere = (part.split() for part in SIGNATURES[name].partition("..."))
    taken = parameters(found(name))
    assert taken[: len(first)] == first
    assert bool(dots) or taken == first
    assert set(anywhere) <= set(taken)


def test_conversations_are_extended_by_a_method_known_by_name():
    from verl_kernel.verl_names import append_messages

    assert parameters(append_messages(found(LOOP)))[1:6] == [
        *("previous_messages", "updated_messages", "runtime_token_ids", "response_mask", "response_logprobs")
    ]


@pytest.mark.parametrize("name", [f"{LOOP}.run", f"{REWARD}.base:RewardManagerBase.run_single"])
def test_it_is_awaited(name):
    assert inspect.iscoroutinefunction(found(name))


@pytest.mark.parametrize(("name", "fields"), [
    ("verl.workers.config:ActorConfig", "clip_ratio clip_ratio_low clip_ratio_high policy_loss global_batch_info"),
    ("verl.workers.config.rollout:AgentLoopConfig", "agent_loop_manager_class"),
    ("verl.workers.config:HFModelConfig", "lora_rank lora_adapter_path lora"),
    (
        "verl.trainer.config.algorithm:RolloutCorrectionConfig",
        "rollout_is rollout_is_threshold rollout_rs rollout_rs_threshold bypass_mode",
    ),
])  # fmt: skip
def test_a_configuration_has_the_fields(name, fields):
    assert {*fields.split()} <= {field.name for field in dataclasses.fields(found(name))}


def test_a_trajectory_fills_fields_of_a_loops_output():
    assert found("verl.experimental.agent_loop.agent_loop:AgentLoopOutput").model_fields.keys() >= {
        *("prompt_ids", "response_ids", "response_mask", "response_logprobs"),
        *("reward_score", "num_turns", "metrics", "extra_fields"),
    }


def test_the_asynchronous_sampler_leaves_the_seams_to_its_base():
    base, asynchronous = found(BUFFER), found(f"{BUFFER}Async")
    assert issubclass(asynchronous, base)
    seams = {"__init__", "_dapo_filtered_keys", "_evict_terminal_groups", "_select_prompt_uids"}
    assert not seams & set(vars(asynchronous))
    assert hasattr(asynchronous, "wait_for_sampleable")
    assert hasattr(asynchronous, "get_sampleable_count")


def test_the_class_behind_verls_actor_can_be_extended():
    import ray
    from ray.exceptions import RayError
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

    worker = found(f"{TQ}:AgentLoopWorkerTQ")
    assert issubclass(worker, AgentLoopWorker)
    assert hasattr(ray.remote(type("Extended", (worker,), {})), "options")
    with pytest.raises((TypeError, RayError)):
        type("Refused", (AgentLoopWorkerTQ,), {})


def test_a_platform_needs_no_more_methods_than_ours_has():
    from verl_kernel.cpu.platform import PlatformCPU

    assert callable(found("verl.plugin.platform.platform_manager:PlatformRegistry.get"))
    assert issubclass(PlatformCPU, found("verl.plugin.platform.platform_base:PlatformBase"))
    assert not inspect.isabstract(PlatformCPU)


def test_an_engine_has_six_methods_with_our_parameters():
    from verl_kernel.cpu.checkpoint_engine import GlooCheckpointEngine

    verls = found("verl.checkpoint_engine.base:CheckpointEngine")
    names = {"prepare", "build_topology", "init_process_group", "finalize", "send_weights", "receive_weights"}
    assert verls.__abstractmethods__ == names
    for name in names - {"init_process_group"}:
        assert parameters(getattr(GlooCheckpointEngine, name)) == parameters(getattr(verls, name))
    assert verls.wire_format == "named_tensors"
