# SPDX-License-Identifier: Apache-2.0
"""Pins what recipes, seams and checks before the start lean on in what verl's trainers and their parts do."""

import ast
import importlib.metadata
import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from omegaconf import OmegaConf

from tests.compat.pins import VERL, found
from tests.config.composed import composed

MODES = ("sync", "colocate_async", "separate_async")
TRAINER = "verl.trainer.ppo.v1:get_trainer_cls"


@pytest.fixture
def trainer(verl_config):
    """A trainer of a mode that has not been set up, with batches of four prompts."""

    def make(mode: str) -> Any:
        made = object.__new__(found(TRAINER)(mode))
        made.config, made.trainer_mode, made.global_steps = verl_config, mode, 3
        made.config.data.train_batch_size = 4
        return made

    return make


def test_trainer_modes_have_the_names_recipes_use(verl_config):
    for mode in MODES:
        assert found(TRAINER)(mode).__name__.startswith("PPOTrainer")
        assert mode in verl_config.trainer.v1
    assert verl_config.trainer.use_v1 is True
    assert verl_config.trainer.v1.trainer_mode == "sync"


@pytest.mark.parametrize("mode", MODES[1:])
def test_asynchronous_trainers_run_ahead_by_num_warmup_batches(mode, trainer):
    made, prompts = trainer(mode), []
    made._restored_tq_prompt_count = 0
    made._add_prompts_to_generate = prompts.append
    made._add_batch_to_generate = lambda: prompts.append(4)
    made.config.trainer.v1[mode].num_warmup_batches = 3
    made.on_train_begin()
    assert sum(prompts) == 12


@pytest.mark.parametrize(("mode", "kept"), [("sync", []), ("colocate_async", ["transfer_queue"])])
def test_checkpoints_of_asynchronous_trainers_hold_the_queue(mode, kept, trainer, tmp_path, monkeypatch):
    made, queues = trainer(mode), []
    monkeypatch.setattr("transfer_queue.save_checkpoint", lambda path, **_: queues.append(Path(path)))
    made.config.trainer.default_local_dir = str(tmp_path)
    made.use_critic, made.actor_rollout_wg, made.checkpoint_callback = False, Mock(), Mock()
    made.train_dataloader = Mock(state_dict=dict)
    made._save_checkpoint()
    assert (tmp_path / "global_step_3" / "data.pt").exists()
    assert [path.relative_to(tmp_path / "global_step_3").as_posix() for path in queues] == kept


def test_a_custom_sampler_is_built_by_path_and_name(trainer):
    from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync

    from verl_kernel.sampler.prs import PRSReplayBuffer

    made = trainer("colocate_async")
    sampler = made.config.trainer.v1.sampler
    sampler.custom_sampler = {"path": "pkg://verl_kernel.sampler.prs", "name": "PRSReplayBuffer"}
    OmegaConf.set_struct(made.config, False)
    sampler.sampler_kwargs = {"threshold": 0.5, "poll_interval_s": 0.1}
    buffer = made._build_replay_buffer()
    assert isinstance(buffer, PRSReplayBuffer)
    assert isinstance(buffer, ReplayBufferAsync)
    assert (buffer.options.threshold, buffer.poll_interval) == (0.5, 0.1)


def test_padding_rows_have_no_loss_token():
    row, tag = found("verl.trainer.ppo.padding_utils:construct_minimal_padding_template")({}, {}, eos_token_id=0)
    assert row["response_mask"].tolist() == row["loss_mask"].tolist() == [0]
    assert row["rm_scores"].tolist() == [0]
    assert tag["is_padding"] is True


def test_a_loops_output_becomes_the_row_our_subclass_edits():
    import torch
    from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

    row = AgentLoopOutput(
        prompt_ids=[1], response_ids=[2, 3], response_mask=[1, 0], response_logprobs=[-1.0, 0.0], reward_score=0.5,
        metrics=AgentLoopMetrics(), extra_fields={"kernel_turns": "[]"},
    ).as_dict()  # fmt: skip
    assert row["rm_scores"].tolist() == [0, 0.5]
    assert row["rm_scores"].dtype is torch.float32
    assert row["response_mask"].dtype is torch.int64
    assert row["rollout_log_probs"].tolist() == [-1.0, 0.0]
    assert row["extra_fields"]["kernel_turns"] == "[]"
    assert {"prompts", "responses"} <= set(row)


def test_recipes_find_the_keys_they_override(verl_config):
    rollout = [
        *("agent.default_agent_loop", "agent.num_workers", "calculate_log_probs", "engine_kwargs.vllm"),
        "checkpoint_engine.update_weights_bucket_megabytes",
    ]
    model = ["path", "tokenizer_path", "custom_chat_template", "trust_remote_code"]
    for key in (
        *("trainer.v1.sampler.sampler_kwargs", "trainer.v1.sampler.custom_sampler.path"),
        *("trainer.rollout_data_dir", "trainer.device", "reward.reward_manager.name", "reward.num_workers"),
        *(f"actor_rollout_ref.rollout.{key}" for key in rollout),
        *(f"actor_rollout_ref.model.{key}" for key in model),
        *(f"actor_rollout_ref.actor.{key}" for key in ("loss_agg_mode", "loss_scale_factor", "use_kl_loss")),
        *(f"algorithm.{key}" for key in ("adv_estimator", "gamma", "use_kl_in_reward")),
        *(f"algorithm.rollout_correction.rollout_{key}" for key in ("is", "is_threshold", "rs", "rs_threshold")),
        "algorithm.rollout_correction.bypass_mode",
    ):
        assert OmegaConf.select(verl_config, key, default="missing") != "missing", key


# Transfer of weights.


def test_engines_register_by_a_name_that_verl_does_not_use():
    from verl.checkpoint_engine.base import CheckpointEngineRegistry
    from verl.utils.import_utils import import_external_libs

    from verl_kernel.cpu import WEIGHT_TRANSFER
    from verl_kernel.cpu.checkpoint_engine import GlooCheckpointEngine
    from verl_kernel.preflight.trainer_mode import ENGINE_MODULE

    import_external_libs(ENGINE_MODULE)
    assert CheckpointEngineRegistry.get(WEIGHT_TRANSFER) is GlooCheckpointEngine
    engine = CheckpointEngineRegistry.new(WEIGHT_TRANSFER, is_master=True, bucket_size=1)
    assert engine.is_master
    assert engine.bucket_size == 1


def test_verls_own_backends_are_those_that_are_refused_on_a_cpu():
    from verl_kernel.preflight.trainer_mode import NEED_AN_ACCELERATOR

    text = "".join(path.read_text() for path in (VERL / "checkpoint_engine").glob("*.py"))
    registered = re.findall(r'@CheckpointEngineRegistry\.register\("(\w+)"\)', text)
    assert {*registered} == {"naive", *NEED_AN_ACCELERATOR}


def test_a_broadcast_comes_from_rank_0_unless_told_otherwise():
    import torch

    options = torch.distributed.BroadcastOptions()
    assert (options.rootRank, options.rootTensor) == (0, 0)
    assert torch.distributed.is_gloo_available()


def test_engines_register_by_device():
    import verl.workers.engine  # noqa: F401  (fills the registry)
    from verl.workers.engine.base import EngineRegistry

    assert "cuda" in EngineRegistry._engines["language_model"]["fsdp2"]


# The asynchronous trainer with a rollout of its own.
SEPARATE = ("cpu_quickstart", "trainer_mode=separate_async")


@pytest.mark.parametrize(("key", "value", "said"), [
    ("data.train_batch_size", 5, "parameter_sync_step * ppo_mini_batch_size"),
    ("actor_rollout_ref.rollout.nnodes", 0, "nnodes must be > 0"),
    ("actor_rollout_ref.rollout.n_gpus_per_node", 0, "n_gpus_per_node must be > 0"),
    ("actor_rollout_ref.rollout.checkpoint_engine.backend", "naive", "nccl"),
])  # fmt: skip
def test_the_trainer_has_rules_for_batches_and_devices(key, value, said):
    with pytest.raises(AssertionError, match=re.escape(said)):
        found(TRAINER)("separate_async")(composed(*SEPARATE, f"{key}={value}"))


def test_the_preset_has_devices_for_trainer_and_rollout():
    config = composed(*SEPARATE)
    rollout = config.actor_rollout_ref.rollout
    assert rollout.nnodes == 1
    assert rollout.n_gpus_per_node == config.trainer.n_gpus_per_node == 1
    assert config.actor_rollout_ref.hybrid_engine is False


def flushing(source: str) -> list[str]:
    """The functions to which a module hands `flush`."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [ast.unparse(call.func) for call in calls if any(word.arg == "flush" for word in call.keywords)]


def test_whatever_the_trainer_flushes_is_a_logger():
    assert set(flushing((VERL / "trainer/ppo/v1/trainer_separate_async.py").read_text())) <= {"logger.info"}


def test_the_supported_release_flushes_its_logger_hence_our_own():
    """Once it does not, `plugin/trainer_log.py` can go."""
    installed = importlib.metadata.distribution("verl").locate_file("verl/trainer/ppo/v1/trainer_separate_async.py")
    assert flushing(Path(installed).read_text()) == ["logger.info"]
