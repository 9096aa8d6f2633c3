# SPDX-License-Identifier: Apache-2.0
"""Pins what the agent loop and the reward manager lean on in verl."""

from __future__ import annotations

import ast
import dataclasses
import inspect

import torch
from omegaconf import DictConfig

from tests.compat.pins import parameters, source_of
from verl_kernel.verl_names import append_messages

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
    assert parameters(append_messages(AgentLoopBase))[1:6] == [
        "previous_messages",
        "updated_messages",
        "runtime_token_ids",
        "response_mask",
        "response_logprobs",
    ]


def test_agent_loops_know_template_options_and_stop_tokens() -> None:
    loops = "experimental/agent_loop"
    init = ast.unparse(source_of(f"{loops}/agent_loop.py", "AgentLoopBase", "__init__"))
    assert "self.apply_chat_template_kwargs = self.data_config.get('apply_chat_template_kwargs', {})" in init
    assert "'stop_token_ids': stop_token_ids" in ast.unparse(source_of(f"{loops}/tool_agent_loop.py", "ToolAgentLoop"))
    server = ast.unparse(source_of("workers/rollout/vllm_rollout/vllm_async_server.py", "vLLMHttpServer", "generate"))
    assert "SamplingParams(max_tokens=max_tokens, **sampling_params)" in server


def test_tokenizers_and_templates_are_found_as_we_find_them(verl_config: DictConfig) -> None:
    from verl.utils import hf_tokenizer

    assert parameters(hf_tokenizer) == ["name_or_path", "correct_pad_token", "correct_gemma2", "kwargs"]
    assert {"path", "tokenizer_path", "custom_chat_template", "trust_remote_code"} <= set(
        verl_config.actor_rollout_ref.model
    )
    model = ast.unparse(source_of("workers/config/model.py", "HFModelConfig"))
    assert "self.tokenizer.chat_template = self.custom_chat_template" in model


def test_agent_loops_register_as_a_target_by_name() -> None:
    from verl.experimental.agent_loop import agent_loop

    assert parameters(agent_loop.register) == ["agent_name"]
    assert agent_loop._agent_loop_registry["single_turn_agent"]["_target_"].endswith("SingleTurnAgentLoop")


def test_loss_mask_is_the_twin_of_response_mask() -> None:
    source = ast.unparse(source_of("trainer/ppo/v1/agent_loop_tq.py", "_agent_loop_postprocess"))
    assert "field['loss_mask'] = field['response_mask']" in source
    assert "f'{uid}_{session_id}_{i}'" in source


def test_agent_loop_managers_are_chosen_by_name(verl_config: DictConfig) -> None:
    from verl.trainer.ppo.v1 import AgentLoopManagerTQ
    from verl.workers.config.rollout import AgentLoopConfig

    assert parameters(AgentLoopManagerTQ.generate_sequences) == ["self", "prompts"]
    assert "agent_loop_manager_class" in {field.name for field in dataclasses.fields(AgentLoopConfig)}
    start = ast.unparse(source_of("trainer/main_ppo.py", "TaskRunnerV1", "init_agent_loop_manager"))
    assert "load_class_from_fqn(manager_class_fqn" in start
    validate = ast.unparse(source_of("trainer/ppo/v1/trainer_base.py", "PPOTrainer", "_validate"))
    assert "assign_non_tensor_data(batch, 'validate', True)" in validate


def test_a_failed_rollout_fails_its_prompt_alone() -> None:
    source = ast.unparse(source_of("trainer/ppo/v1/agent_loop_tq.py", "_run_prompt"))
    assert "_settle_session_tasks(tasks)" in source
    assert "status = 'failure'" in source


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


def test_a_reward_set_by_the_loop_is_not_computed_again() -> None:
    source = ast.unparse(source_of("experimental/agent_loop/agent_loop.py", "_compute_score"))
    assert "final_output.reward_score is None" in source


def test_reward_managers_see_rows_and_reach_the_sampler() -> None:
    source = ast.unparse(source_of("experimental/agent_loop/agent_loop.py", "_compute_score"))
    assert "**{k: np.array([v] * n) for (k, v) in kwargs.items()}" in source.replace("for k, v in", "for (k, v) in")
    assert "final_output.extra_fields['reward_extra_info'] = result['reward_extra_info']" in source
