# SPDX-License-Identifier: Apache-2.0
"""Asynchronous trainers that could not work are refused in one sentence."""

import pytest
from omegaconf import DictConfig

from tests.config.composed import composed
from verl_kernel.errors import ConfigError
from verl_kernel.preflight.trainer_mode import NEED_AN_ACCELERATOR, check_asynchronous

SEPARATE = "trainer_mode=separate_async"
TRANSFER = "actor_rollout_ref.rollout.checkpoint_engine"
SAMPLER = "trainer.v1.sampler"


@pytest.fixture(autouse=True)
def platform(monkeypatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")


def config(*overrides: str) -> DictConfig:
    return composed("cpu_quickstart", *overrides)


def refusal(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        check_asynchronous(config(*overrides))
    return str(caught.value)


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_the_recipe_passes_in_every_mode(mode: str):
    check_asynchronous(config(f"trainer_mode={mode}"))


@pytest.mark.parametrize("staleness", [0, 2, 4])
@pytest.mark.parametrize("mode", ["colocate_async", "separate_async"])
def test_staleness_is_set_by_three_keys(mode: str, staleness: int):
    exact = (f"{SAMPLER}.max_off_policy_strategy=wait", f"{SAMPLER}.max_off_policy_threshold=1")
    check_asynchronous(config(f"trainer_mode={mode}", f"trainer.v1.{mode}.num_warmup_batches={staleness}", *exact))


@pytest.mark.parametrize("backend", ["naive", *NEED_AN_ACCELERATOR])
def test_a_transfer_that_a_cpu_cannot_make_is_refused(backend: str):
    sentence = refusal(SEPARATE, f"{TRANSFER}.backend={backend}")
    assert f"backend is {backend}" in sentence
    assert "needs kernel_gloo" in sentence


def test_a_backend_of_ones_own_is_left_alone():
    check_asynchronous(config(SEPARATE, f"{TRANSFER}.backend=mine", f"{TRANSFER}.custom_backend_module=my.module"))


def test_a_backend_that_nobody_registers_is_refused():
    sentence = refusal(SEPARATE, f"{TRANSFER}.custom_backend_module=null")
    assert "custom_backend_module" in sentence
    assert "verl_kernel.cpu.checkpoint_engine" in sentence


@pytest.mark.parametrize(("overrides", "needed"), [((), 2), (("actor_rollout_ref.rollout.n_gpus_per_node=2",), 3)])
def test_one_logical_gpu_is_too_few(overrides: tuple[str, ...], needed: int):
    sentence = refusal(SEPARATE, "ray_kwargs.ray_init.num_gpus=1", *overrides)
    assert "num_gpus is 1" in sentence
    assert f"set it to {needed}" in sentence


def test_one_logical_gpu_suffices_where_it_is_shared():
    check_asynchronous(config("trainer_mode=colocate_async", "ray_kwargs.ray_init.num_gpus=1"))


def test_the_batch_holds_the_mini_batches_between_two_transfers():
    sentence = refusal(SEPARATE, "trainer.v1.separate_async.parameter_sync_step=2")
    assert "parameter_sync_step is 2" in sentence
    assert "set data.train_batch_size to 16" in sentence
    check_asynchronous(config(SEPARATE, "trainer.v1.separate_async.parameter_sync_step=2", "data.train_batch_size=16"))


@pytest.mark.parametrize("mode", ["colocate_async", "separate_async"])
def test_prompts_that_would_always_be_too_old_are_refused(mode: str):
    queue = (f"trainer_mode={mode}", f"trainer.v1.{mode}.num_warmup_batches=4")
    sentence = refusal(*queue, f"{SAMPLER}.max_off_policy_threshold=4")
    assert "max_off_policy_threshold is 4" in sentence
    assert "num_warmup_batches is 4" in sentence
    assert "to 5" in sentence
    for threshold in ("5", "null"):
        check_asynchronous(config(*queue, f"{SAMPLER}.max_off_policy_threshold={threshold}"))


def test_on_gpus_verls_nccl_is_not_refused(monkeypatch):
    monkeypatch.delenv("VERL_PLATFORM")
    gpus = composed("kernel_trloo", SEPARATE)
    assert gpus.actor_rollout_ref.rollout.checkpoint_engine.backend == "nccl"
    check_asynchronous(gpus)
    assert config(SEPARATE).actor_rollout_ref.rollout.checkpoint_engine.backend == "kernel_gloo"
