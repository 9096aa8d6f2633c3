# SPDX-License-Identifier: Apache-2.0
"""Pins what the platform for machines without a GPU leans on in verl."""

from __future__ import annotations

import ast
import inspect

from tests.compat.pins import VERL, argument_names, parameters, source_of


def test_a_platform_needs_no_more_methods_than_ours_has() -> None:
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


def test_process_groups_start_where_the_cpu_platform_patches() -> None:
    from verl.utils import distributed

    function = inspect.unwrap(distributed.initialize_global_process_group_ray)
    assert parameters(function) == ["timeout_second", "backend"]
    assert "initialize_global_process_group_ray" in (VERL / "workers/engine_workers.py").read_text()


def test_the_sft_trainer_starts_groups_as_we_expect() -> None:
    from verl.utils import distributed

    source = (VERL / "trainer/sft_trainer.py").read_text()
    assert "from verl.utils.distributed import initialize_global_process_group\n" in source
    assert parameters(inspect.unwrap(distributed.initialize_global_process_group)) == ["timeout_second"]
    assert "DistributedSampler(\n            self.train_dataset, shuffle=True, num_replicas=dp_size" in source
    assert "train_sampler.set_epoch(epoch=epoch)" in source


def test_log_probs_have_both_fallbacks_that_we_swap() -> None:
    from verl.utils import torch_functional

    for name in ("logprobs_from_logits_v2", "logprobs_from_logits_naive"):
        assert parameters(getattr(torch_functional, name)) == ["logits", "labels"]
    body = source_of("utils/torch_functional.py", "logprobs_from_logits")
    assert "logprobs_from_logits_v2" in {node.id for node in ast.walk(body) if isinstance(node, ast.Name)}


def test_vllms_version_is_asked_of_importlib_metadata() -> None:
    source = (VERL / "third_party/vllm/__init__.py").read_text()
    assert "from importlib.metadata import" in source
    assert "version(pkg)" in source


def test_weights_reach_vllm_through_the_worker_extension() -> None:
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
