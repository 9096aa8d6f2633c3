# SPDX-License-Identifier: Apache-2.0
"""Checks of the trainer's attention and of how it spreads a model over GPUs."""

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
"""What verl's model configuration takes where `CHOICE` is left out."""


def attention(config: DictConfig) -> str:
    """The implementation that the trainer's model gets."""
    return str(read(config, CHOICE) or VERLS_CHOICE)


def check_shards(config: DictConfig) -> None:
    """GPUs can be divided by what shares a sequence or a layer, and the attention knows that sequences are shared.

    Raises:
        ConfigError: they cannot, or it does not.
    """
    apart = read(config, "trainer.v1.trainer_mode") == "separate_async"
    _check_divides(config, SHARDS, "trainer")
    _check_divides(config, TENSORS, "actor_rollout_ref.rollout" if apart else "trainer")
    shards = read(config, SHARDS)
    if shards > 1 and "flash" not in attention(config):
        # verl exchanges parts in transformers' flash attention alone (verl.models.transformers.monkey_patch).
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
    """The package of the chosen attention is installed; yields where that could not be looked at.

    Raises:
        EnvironmentNotReady: it is not.
    """
    if attention(config) != VERLS_CHOICE:
        return
    if machine.description or (machine.cluster and not machine.gpus):
        yield f"the package flash-attn, which {CHOICE} = {VERLS_CHOICE} needs on nodes with GPUs"
        return
    facts.flash_attention()
