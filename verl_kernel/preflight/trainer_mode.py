# SPDX-License-Identifier: Apache-2.0
"""Checks verl's asynchronous trainers for settings with which a run fails late, waits for ever or trains nothing."""

from __future__ import annotations

import math

from omegaconf import DictConfig

from verl_kernel import cpu
from verl_kernel.errors import ConfigError
from verl_kernel.preflight.hardware import devices
from verl_kernel.verl_keys import KEYS, read

TRANSFER = "actor_rollout_ref.rollout.checkpoint_engine"
ENGINE_MODULE = "verl_kernel.cpu.checkpoint_engine"
NEED_AN_ACCELERATOR = ("nccl", "nixl", "kimi_ckpt_engine", "mooncake", "delta_sharded")
"""verl's own backends except `naive`, which does not leave the trainer's process."""
_SAMPLER = "trainer.v1.sampler"


def check_asynchronous(config: DictConfig) -> None:
    """Check that queue, batch, devices and weight transfer of an asynchronous trainer fit each other.

    Raises:
        ConfigError: they do not.
    """
    mode = read(config, "trainer.v1.trainer_mode")
    if f"trainer.v1.{mode}.num_warmup_batches" not in KEYS:
        return
    _check_age(config, mode)
    if mode == "separate_async":
        _check_batch(config)
        if read(config, "trainer.device") == "cpu":
            _check_transfer(config)
            _check_devices(config)


def _check_age(config: DictConfig, mode: str) -> None:
    """Check the age of samples: a prompt waits for `num_warmup_batches` updates before it is trained on."""
    waits, oldest, strategy = (
        read(config, key)
        for key in (
            f"trainer.v1.{mode}.num_warmup_batches",
            f"{_SAMPLER}.max_off_policy_threshold",
            f"{_SAMPLER}.max_off_policy_strategy",
        )
    )
    needed = math.ceil(waits) + 1
    if strategy == "drop" and oldest is not None and oldest < needed:
        raise ConfigError(
            f"{_SAMPLER}.max_off_policy_threshold is {oldest} and trainer.v1.{mode}.num_warmup_batches is {waits}, so "
            f"every prompt would be too old when its turn comes and be thrown away: set the threshold to {needed} or "
            f"more, or {_SAMPLER}.max_off_policy_strategy to wait"
        )


def _check_batch(config: DictConfig) -> None:
    keys = (
        "data.train_batch_size",
        "trainer.v1.separate_async.parameter_sync_step",
        "actor_rollout_ref.actor.ppo_mini_batch_size",
    )
    batch, steps, mini = (read(config, key) for key in keys)
    if batch != steps * mini:
        raise ConfigError(
            f"{keys[0]} is {batch}, {keys[1]} is {steps} and {keys[2]} is {mini}: trainer_mode=separate_async takes as "
            f"many mini-batches between two transfers of weights as a batch holds, so set {keys[0]} to {steps * mini}"
        )


def _check_transfer(config: DictConfig) -> None:
    backend = read(config, f"{TRANSFER}.backend")
    if backend == "naive" or backend in NEED_AN_ACCELERATOR:
        why = "does not leave the trainer's process" if backend == "naive" else "needs an accelerator"
        raise ConfigError(
            f"{TRANSFER}.backend is {backend}, which {why}: trainer_mode=separate_async on a CPU needs "
            f"{cpu.WEIGHT_TRANSFER}"
        )
    if backend == cpu.WEIGHT_TRANSFER and read(config, f"{TRANSFER}.custom_backend_module") is None:
        raise ConfigError(
            f"{TRANSFER}.backend is {backend} and custom_backend_module beside it is null, so verl would not find the "
            f"backend: set it to {ENGINE_MODULE}"
        )


def _check_devices(config: DictConfig) -> None:
    key = "ray_kwargs.ray_init.num_gpus"
    logical = read(config, key)
    trainer, rollout = (devices(config, node) for node in ("trainer", "actor_rollout_ref.rollout"))
    if logical is not None and logical < trainer + rollout:
        raise ConfigError(
            f"{key} is {logical}, and with trainer_mode=separate_async the trainer holds {trainer} and the rollout "
            f"{rollout} (on a CPU logical ones): set it to {trainer + rollout}"
        )
