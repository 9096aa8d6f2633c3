# SPDX-License-Identifier: Apache-2.0
"""Pins what the weight transfer without a GPU and the checks of asynchronous trainers lean on."""

import ast
import importlib.metadata
import inspect
import re
from pathlib import Path

import pytest
import torch
import verl
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf
from torch.distributed import BroadcastOptions
from verl.checkpoint_engine.base import (
    CheckpointEngine,
    CheckpointEngineManager,
    CheckpointEngineRegistry,
    CheckpointEngineWorker,
)
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.utils.import_utils import import_external_libs

from verl_kernel.cpu import WEIGHT_TRANSFER
from verl_kernel.cpu.checkpoint_engine import GlooCheckpointEngine
from verl_kernel.preflight.trainer_mode import ENGINE_MODULE, NEED_AN_ACCELERATOR

VERL = Path(verl.__file__).parent
TRAINER = (VERL / "trainer/ppo/v1/trainer_separate_async.py").read_text()
ACTOR = (VERL / "workers/engine_workers.py").read_text()


@pytest.fixture(scope="module")
def config() -> DictConfig:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("cpu_quickstart", overrides=["trainer_mode=separate_async"])


def test_an_engine_has_six_methods_with_these_parameters():
    names = {"prepare", "build_topology", "init_process_group", "finalize", "send_weights", "receive_weights"}
    assert CheckpointEngine.__abstractmethods__ == names
    for name in names - {"init_process_group"}:
        ours, verls = (
            list(inspect.signature(getattr(c, name)).parameters) for c in (GlooCheckpointEngine, CheckpointEngine)
        )
        assert ours == verls
    assert CheckpointEngine.wire_format == "named_tensors"


def test_engines_register_by_a_name_that_verl_does_not_use():
    import_external_libs(ENGINE_MODULE)
    assert CheckpointEngineRegistry.get(WEIGHT_TRANSFER) is GlooCheckpointEngine
    engine = CheckpointEngineRegistry.new(WEIGHT_TRANSFER, is_master=True, bucket_size=1)
    assert engine.is_master
    assert engine.bucket_size == 1


def test_verls_own_backends_are_those_that_are_refused_on_a_cpu():
    sources = [path.read_text() for path in (VERL / "checkpoint_engine").glob("*.py")]
    found = {
        name for source in sources for name in re.findall(r'@CheckpointEngineRegistry\.register\("(\w+)"\)', source)
    }
    assert found == {"naive", *NEED_AN_ACCELERATOR}


def test_both_ends_import_the_named_module_first():
    for source in (ACTOR, inspect.getsource(CheckpointEngineWorker.__init__)):
        imported = source.index("import_external_libs(")
        assert "custom_backend_module" in source[imported : imported + 120]
        assert imported < source.index("CheckpointEngineRegistry.new(")
    assert "is_master=(torch.distributed.get_rank() == 0), bucket_size=bucket_size, **engine_kwargs" in ACTOR
    assert "import_external_libs(" in inspect.getsource(CheckpointEngineManager.__init__)


def test_the_manager_prepares_numbers_joins_sends_and_finalizes():
    source = inspect.getsource(CheckpointEngineManager.build_process_group)
    calls = ['["prepare"] * actor_wg.world_size', "self.backend_cls.build_topology(", '["init_process_group"]']
    assert [source.index(call) for call in calls] == sorted(source.index(call) for call in calls)
    assert "actor_wg.world_size, rollout.world_size, metadata" in source
    update = inspect.getsource(CheckpointEngineManager.update_weights)
    assert 0 < update.index("build_process_group(rollout)") < update.index('"finalize"')


def test_all_of_a_trainers_workers_get_the_weights_to_send():
    assert "await self.checkpoint_engine.send_weights(per_tensor_param, global_steps=global_steps)" in ACTOR
    assert "self.checkpoint_engine.receive_weights(" in inspect.getsource(CheckpointEngineWorker.update_weights)


def test_a_broadcast_comes_from_rank_0_unless_told_otherwise():
    options = BroadcastOptions()
    assert (options.rootRank, options.rootTensor) == (0, 0)
    assert torch.distributed.is_gloo_available()


def flushing(source: str) -> list[str]:
    """The functions to which a module hands `flush`."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [ast.unparse(call.func) for call in calls if any(word.arg == "flush" for word in call.keywords)]


def test_whatever_the_trainer_flushes_is_a_logger():
    assert set(flushing(TRAINER)) <= {"logger.info"}


def test_the_supported_release_flushes_its_logger_hence_our_own():
    """Once it does not, `plugin/trainer_log.py` can go."""
    installed = importlib.metadata.distribution("verl").locate_file("verl/trainer/ppo/v1/trainer_separate_async.py")
    assert flushing(Path(installed).read_text()) == ["logger.info"]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("data.train_batch_size", 5, "parameter_sync_step * ppo_mini_batch_size"),
        ("actor_rollout_ref.rollout.nnodes", 0, "nnodes must be > 0"),
        ("actor_rollout_ref.rollout.n_gpus_per_node", 0, "n_gpus_per_node must be > 0"),
        ("actor_rollout_ref.rollout.checkpoint_engine.backend", "naive", "nccl"),
    ],
)
def test_the_trainer_has_rules_for_batches_and_devices(key: str, value: object, said: str, config: DictConfig):
    refused = config.copy()
    OmegaConf.update(refused, key, value)
    with pytest.raises(AssertionError, match=re.escape(said)):
        get_trainer_cls("separate_async")(refused)


def test_the_preset_has_devices_for_trainer_and_rollout(config: DictConfig):
    rollout = config.actor_rollout_ref.rollout
    assert rollout.nnodes == 1
    assert rollout.n_gpus_per_node == config.trainer.n_gpus_per_node == 1
    assert config.actor_rollout_ref.hybrid_engine is False


def test_a_prompts_age_counts_its_own_step():
    source = (VERL / "trainer/ppo/v1/replay_buffer.py").read_text()
    assert "global_steps - prompt_global_steps.get(uid, global_steps) + 1 > self.max_off_policy_threshold" in source
    # With a threshold of 1, every prompt in flight has reached it: training waits for all of them.
    assert "if (global_steps - prompt_global_steps + 1) >= self.max_off_policy_threshold:" in source
    assert 'self.max_off_policy_strategy == "wait"' in source


def test_staleness_is_counted_in_transfers_of_weights():
    source = (VERL / "trainer/ppo/v1/trainer_base.py").read_text()
    assert "trajectory_staleness = (global_steps - 1) - max_global_steps" in source
    assert "trajectory_staleness_worst = (global_steps - 1) - min_global_steps" in source
    assert 'self.trainer_mode, {}).get("parameter_sync_step", 1)' in source
