# SPDX-License-Identifier: Apache-2.0
"""Asynchronous trainers that could not work are refused in one sentence."""

import pytest

from tests.config.composed import composed
from tests.sentences import refused
from verl_kernel.errors import ConfigError
from verl_kernel.preflight.trainer_mode import NEED_AN_ACCELERATOR, check_asynchronous

SHARED, SEPARATE = "trainer_mode=colocate_async", "trainer_mode=separate_async"
TRANSFER = "actor_rollout_ref.rollout.checkpoint_engine"
SAMPLER = "trainer.v1.sampler"
ONE_GPU = "ray_kwargs.ray_init.num_gpus=1"
TWO_STEPS = "trainer.v1.separate_async.parameter_sync_step=2"
ASYNCHRONOUS = ("colocate_async", "separate_async")
QUEUES = [f"trainer_mode={mode} trainer.v1.{mode}.num_warmup_batches=4" for mode in ASYNCHRONOUS]


@pytest.fixture(autouse=True)
def platform(monkeypatch):
    monkeypatch.setenv("VERL_PLATFORM", "cpu")


REFUSED = {
    **{
        f"{SEPARATE} {TRANSFER}.backend={backend}": (f"backend is {backend}", "needs kernel_gloo")
        for backend in ("naive", *NEED_AN_ACCELERATOR)
    },
    f"{SEPARATE} {TRANSFER}.custom_backend_module=null": ("custom_backend_module", "verl_kernel.cpu.checkpoint_engine"),
    f"{SEPARATE} {ONE_GPU}": ("num_gpus is 1", "set it to 2"),
    f"{SEPARATE} {ONE_GPU} actor_rollout_ref.rollout.n_gpus_per_node=2": ("num_gpus is 1", "set it to 3"),
    # The batch holds the mini-batches between two transfers.
    f"{SEPARATE} {TWO_STEPS}": ("parameter_sync_step is 2", "set data.train_batch_size to 16"),
    # Prompts that would always be too old.
    **dict.fromkeys(
        (f"{queue} {SAMPLER}.max_off_policy_threshold=4" for queue in QUEUES),
        ("max_off_policy_threshold is 4", "num_warmup_batches is 4", "to 5"),
    ),
}


@pytest.mark.parametrize("overrides", REFUSED)
def test_what_could_not_work_is_refused(overrides):
    with refused(*REFUSED[overrides], by=ConfigError):
        check_asynchronous(composed("cpu_quickstart", *overrides.split()))


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [
    *("trainer_mode=sync", SHARED, SEPARATE), f"{SHARED} {ONE_GPU}",
    f"{SEPARATE} {TRANSFER}.backend=mine {TRANSFER}.custom_backend_module=my.module",
    f"{SEPARATE} {TWO_STEPS} data.train_batch_size=16",
    *(f"{queue} {SAMPLER}.max_off_policy_threshold={bound}" for queue in QUEUES for bound in ("5", "null")),
    # Staleness is set by three keys.
    *(
        f"trainer_mode={mode} trainer.v1.{mode}.num_warmup_batches={staleness}"
        f" {SAMPLER}.max_off_policy_strategy=wait {SAMPLER}.max_off_policy_threshold=1"
        for mode in ASYNCHRONOUS
        for staleness in (0, 2, 4)
    ),
])  # fmt: skip
def test_what_works_passes(overrides):
    check_asynchronous(composed("cpu_quickstart", *overrides.split()))


def test_on_gpus_verls_nccl_is_not_refused(monkeypatch):
    assert composed("cpu_quickstart", SEPARATE).actor_rollout_ref.rollout.checkpoint_engine.backend == "kernel_gloo"
    monkeypatch.delenv("VERL_PLATFORM")
    gpus = composed("kernel_trloo", SEPARATE)
    assert gpus.actor_rollout_ref.rollout.checkpoint_engine.backend == "nccl"
    check_asynchronous(gpus)
