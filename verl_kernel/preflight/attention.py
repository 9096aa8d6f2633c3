# SPDX-License-Identifier: Apache-2.0
"""Checks the trainer's attention and how it spreads a model over GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from omegaconf import DictConfig

from verl_kernel.errors import ConfigError
from verl_kernel.preflight import machine as facts
from verl_kernel.preflight.hardware import Machine
from verl_kernel.verl_keys import read

CHOICE = "actor_rollout_ref.model.override_config.attn_implementation"
SHARDS = "actor_rollout_ref.actor.ulysses_sequence_parallel_size"
TENSORS = "actor_rollout_ref.rollout.tensor_model_parallel_size"
VERLS_CHOICE = "flash_attention_2"
"""The default of verl's model configuration if `CHOICE` is left out."""


def attention(config: DictConfig) -> str:
    """Return the attention implementation of the trainer's model."""
    return str(read(config, CHOICE) or VERLS_CHOICE)


def check_shards(config: DictConfig) -> None:
    """Check that the GPUs are divisible by those that share a sequence or a layer, and that attention supports sharing.

    Raises:
        ConfigError: they are not divisible, or the attention does not support it.
    """
    apart = read(config, "trainer.v1.trainer_mode") == "separate_async"
    _check_divides(config, SHARDS, "trainer")
    _check_divides(config, TENSORS, "actor_rollout_ref.rollout" if apart else "trainer")
    shards = read(config, SHARDS)
    if shards > 1 and "flash" not in attention(config):
        # verl shares a sequence only in transformers' flash attention (verl.models.transformers.monkey_patch).
        raise ConfigError(
            f"{SHARDS} is {shards} and {CHOICE} is {attention(config)}, in which each GPU would attend to its own part "
            f"of a sequence alone, without an error: set the one to 1 or the other to {VERLS_CHOICE}"
        )


def _check_divides(config: DictConfig, key: str, node: str) -> None:
    gpus = read(config, f"{node}.nnodes") * read(config, f"{node}.n_gpus_per_node")
    if gpus % read(config, key):
        raise ConfigError(
            f"{key} is {read(config, key)} and there are {gpus} GPUs for it ({node}.nnodes x {node}.n_gpus_per_node): "
            "set it to a divisor of them"
        )


def check_attention(config: DictConfig, machine: Machine) -> Iterator[str]:
    """Check that the package of the chosen attention is installed; yield what could not be checked.

    Raises:
        EnvironmentNotReady: it is not installed.
    """
    if attention(config) != VERLS_CHOICE:
        return
    if machine.description or (machine.cluster and not machine.gpus):
        yield f"the package flash-attn, which {CHOICE} = {VERLS_CHOICE} needs on nodes with GPUs"
        return
    facts.flash_attention()
