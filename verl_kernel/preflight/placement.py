# SPDX-License-Identifier: Apache-2.0
"""Checks a configuration against a machine: whether trainer, rollout and judges find the resources they ask for.

Each check yields what it could not check, and why.
"""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Iterator
from pathlib import Path

from omegaconf import DictConfig

from verl_kernel.env import GymOptions, granted_isolation
from verl_kernel.errors import ConfigError, EnvironmentNotReady
from verl_kernel.preflight import machine as facts
from verl_kernel.preflight.hardware import Machine, devices
from verl_kernel.reward.options import parse_options
from verl_kernel.verl_keys import find, read
from verl_kernel.verl_names import AGENT_LOOP, REWARD_MANAGER

CHOICE = "actor_rollout_ref.model.override_config.attn_implementation"
SHARDS = "actor_rollout_ref.actor.ulysses_sequence_parallel_size"
PROMPTS, ROLLOUTS = "data.train_batch_size", "actor_rollout_ref.rollout.n"
STRATEGY = "actor_rollout_ref.actor.strategy"
TENSORS = "actor_rollout_ref.rollout.tensor_model_parallel_size"
VERLS_CHOICE = "flash_attention_2"
"""The default of verl's model configuration if `CHOICE` is left out."""
LOGGERS = {
    **{name: name for name in ("wandb", "mlflow", "swanlab", "clearml", "trackio", "tensorboard")},
    "tracking": "wandb",
}
"""Packages that verl imports for a logger when its trainer is made (verl.utils.tracking)."""
CONTEXT_MB = 1500
"""Memory of a GPU for the contexts of a judge and of its runner, with a margin."""
_CLUSTER = "set RAY_ADDRESS to the Ray cluster that has them (auto: the one that this machine belongs to)"
_BUCKET = "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes"


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
    _check_rows(config)
    shards = read(config, SHARDS)
    if shards > 1 and "flash" not in attention(config):
        # verl shares a sequence only in transformers' flash attention (verl.models.transformers.monkey_patch).
        raise ConfigError(
            f"{SHARDS} is {shards} and {CHOICE} is {attention(config)}, in which each GPU would attend to its own part "
            f"of a sequence alone, without an error: set the one to 1 or the other to {VERLS_CHOICE}"
        )


def _check_divides(config: DictConfig, key: str, node: str) -> None:
    gpus = devices(config, node)
    if gpus % read(config, key):
        raise ConfigError(
            f"{key} is {read(config, key)} and there are {gpus} GPUs for it ({node}.nnodes x {node}.n_gpus_per_node): "
            "set it to a divisor of them"
        )


def _check_rows(config: DictConfig) -> None:
    if read(config, "actor_rollout_ref.actor.use_dynamic_bsz") or read(config, STRATEGY) == "megatron":
        return
    gpus = devices(config, "trainer")
    rows = read(config, PROMPTS) * read(config, ROLLOUTS)
    if rows % gpus:
        raise ConfigError(
            f"{PROMPTS} x {ROLLOUTS} is {rows}, and the trainer's {gpus} GPUs (trainer.nnodes x "
            "trainer.n_gpus_per_node) get as many rows each: make it a multiple of them"
        )


def check_driver(config: DictConfig, machine: Machine) -> Iterator[str]:
    """Check that the driver of this machine runs the CUDA of torch.

    Raises:
        EnvironmentNotReady: it does not.
    """
    if machine.driver:
        import torch

        facts.check_driver(machine.driver, torch.version.cuda)
    yield from ()


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


def check_platform(config: DictConfig, machine: Machine) -> None:
    """Check that `trainer.device` and the environment agree.

    Raises:
        ConfigError: they do not.
    """
    device = read(config, "trainer.device")
    if (device == "cpu") == (machine.platform == "cpu"):
        return
    if machine.description:
        raise ConfigError(f"trainer.device is {device} and {machine} has GPUs: choose a recipe for GPUs")
    raise ConfigError(
        f"trainer.device is {device} and VERL_PLATFORM is {os.environ.get('VERL_PLATFORM', 'unset')}: a run "
        "without a GPU needs trainer.device=cpu and VERL_PLATFORM=cpu, any other run neither"
    )


def check_judges(config: DictConfig, machine: Machine) -> Iterator[str]:
    """Check that judges get the GPUs they need, and run kernels on a CPU only if the configuration says so.

    Raises:
        ConfigError: keys contradict each other, or times would silently be simulated on a machine with GPUs.
        EnvironmentNotReady: there is no GPU to judge on, or the service that should judge does not answer.
    """
    options = _gym(config)
    if not uses_gym(config):
        return
    if options.address is not None:
        yield from _check_service(options, machine)
        return
    if not machine.gpus and not machine.cluster:
        _refuse_no_gpu(options, machine)
    _refuse_hidden_gpus(config, options, machine)
    if not _judges_on_gpus(options):
        return
    if machine.gpu_mb is None or machine.cluster:
        yield "the memory of judges' GPUs (kernelgym.memory_mb): a judge asks its driver when it starts"
    else:
        _refuse_small_gpus(options, machine.gpu_mb, machine)


def _check_service(options: GymOptions, machine: Machine) -> Iterator[str]:
    """Check that the service at `kernelgym.address` answers and judges by these options."""
    if machine.description:
        yield f"the service at {options.address}: the machine is only described"
        return
    from verl_kernel.client import RemoteGym

    RemoteGym.connect(options).close()


def _refuse_no_gpu(options: GymOptions, machine: Machine) -> None:
    if options.device == "cuda" or _judges_on_gpus(options):
        remark = f" and kernelgym.gpus_per_judge is {options.gpus_per_judge:g}" if options.device == "auto" else ""
        raise EnvironmentNotReady(
            f"kernelgym.device is {options.device}{remark}, and {machine} has no GPU: {_CLUSTER}, or use device cpu "
            "with kernelgym.gpus_per_judge=0 (kernels on the CPU, simulated times)"
        )


def _refuse_hidden_gpus(config: DictConfig, options: GymOptions, machine: Machine) -> None:
    if options.gpus_per_judge > 0 or options.device == "cpu":
        return
    hidden = (
        f"kernelgym.device is {options.device} and kernelgym.gpus_per_judge is 0, so Ray hides every GPU from judges"
    )
    if options.device == "cuda":
        raise ConfigError(f"{hidden}: set it to the share of a GPU that a judge may hold")
    if machine.gpus or read(config, "trainer.device") != "cpu":
        raise ConfigError(
            f"{hidden}, and times would be simulated although there are GPUs: set kernelgym.device=cuda and "
            "kernelgym.gpus_per_judge=1, or kernelgym.device=cpu if simulated times are what you want"
        )


def _refuse_small_gpus(options: GymOptions, gpu_mb: int, machine: Machine) -> None:
    most_mb = gpu_mb - CONTEXT_MB * max(1, int(1 / options.gpus_per_judge))
    if options.memory_mb > most_mb:
        raise ConfigError(
            f"kernelgym.memory_mb is {options.memory_mb}, and a GPU of {machine} has {most_mb} MB for judges and "
            f"runners: set it to at most {most_mb}, less what references need"
        )


def check_gpus(config: DictConfig, machine: Machine) -> Iterator[str]:
    """Check that the machine has as many GPUs as trainer, rollout and judges ask Ray for.

    Raises:
        ConfigError: it has fewer.
        EnvironmentNotReady: it has none.
    """
    if read(config, "trainer.device") == "cpu":
        return
    demand = _gpus_by_part(config)
    if machine.cluster:
        yield f"{sum(demand.values())} GPUs in the Ray cluster at {machine.cluster}: a run asks for them when it starts"
        return
    if not machine.gpus:
        raise EnvironmentNotReady(
            f"trainer.device is {read(config, 'trainer.device')} and {machine} has no GPU: {_CLUSTER}, or train on a "
            "CPU with VERL_PLATFORM=cpu and a recipe for it"
        )
    node, there = read(config, "trainer.n_gpus_per_node"), machine.nodes * machine.gpus
    if node > machine.gpus or sum(demand.values()) > there:
        parts = ", ".join(f"{count} {part}" for part, count in demand.items() if count)
        raise ConfigError(
            f"the run asks for {sum(demand.values())} GPUs ({parts}) and {machine} has {there}, {machine.gpus} a node: "
            "choose gpus=one, eight or sixteen, set trainer.n_gpus_per_node, actor_rollout_ref.rollout.n_gpus_per_node "
            f"and kernelgym.num_judges, or {_CLUSTER}"
        )


def _gpus_by_part(config: DictConfig) -> dict[str, int]:
    options = _gym(config)
    judges = 0
    if uses_gym(config) and options.address is None and _judges_on_gpus(options):
        share = options.gpus_per_judge
        judges = math.ceil(options.num_judges * share if share >= 1 else options.num_judges / int(1 / share))
    apart = read(config, "trainer.v1.trainer_mode") == "separate_async"
    return {
        "the trainer": devices(config, "trainer"),
        "the rollout": devices(config, "actor_rollout_ref.rollout") if apart else 0,
        "the judges": judges,
    }


def check_loggers(config: DictConfig, machine: Machine) -> Iterator[str]:
    """Check that the packages of the loggers are installed, where the run starts on this machine.

    Raises:
        EnvironmentNotReady: one is not; verl would notice after the model and vLLM have started.
    """
    loggers = read(config, "trainer.logger")
    for name in [loggers] if isinstance(loggers, str) else loggers:
        package = LOGGERS.get(name)
        if package is None or machine.description or machine.cluster:
            continue
        if importlib.util.find_spec(package) is None:
            raise EnvironmentNotReady(
                f"trainer.logger names {name}, and the package {package} is not installed: `pip install {package}`, or "
                "leave it out"
            )
    yield from ()


def check_machine(config: DictConfig, machine: Machine) -> Iterator[str]:
    """Check that vLLM, the compiler, shared memory and the isolation that the run asks for are available.

    Raises:
        EnvironmentNotReady: one of them is not available.
    """
    if machine.description:
        yield (
            f"installed packages, NVIDIA's driver ({facts.DRIVERS[13]} or later for requirements/gpu.txt), a compiler, "
            "/dev/shm and the jail: the machine is only described"
        )
        return
    if read(config, "actor_rollout_ref.rollout.name") == "vllm":
        facts.vllm()
    if machine.cluster and not machine.gpus and machine.platform == "cuda":
        yield "driver, compiler, /dev/shm and the jail on the nodes with GPUs: run `verl-kernel doctor` there"
        return
    _check_here(config, machine.platform)


def check_hub(config: DictConfig, machine: Machine) -> Iterator[str]:
    """Yield a model that is still on the hub, because it cannot be checked."""
    from huggingface_hub import try_to_load_from_cache

    path = read(config, "actor_rollout_ref.model.path")
    if not Path(path).expanduser().exists() and not isinstance(try_to_load_from_cache(path, "config.json"), str):
        yield f"the chat template of {path}: the model is not on this machine; the agent loop looks when it starts"


def _check_here(config: DictConfig, device: str) -> None:
    if device == "cuda" and read(config, "actor_rollout_ref.rollout.name") == "vllm":
        facts.compiler()
        facts.python_headers()
    # Without CUDA's shared handles, weights reach vLLM through a bucket in /dev/shm.
    facts.shared_memory_mb(facts.SHARED_MEMORY_MB + (2 * read(config, _BUCKET) if device == "cpu" else 0))
    required = _gym(config).require_isolation
    absent = sorted(set(required) - set(granted_isolation(device) if required else ()))
    if absent:
        raise EnvironmentNotReady(
            f"kernelgym.require_isolation names {', '.join(absent)}, which this machine does not grant: `verl-kernel "
            "doctor` lists what it does"
        )


def _gym(config: DictConfig) -> GymOptions:
    return parse_options(find(config, "kernelgym")).env


def uses_gym(config: DictConfig) -> bool:
    """Whether candidates are judged at all: by our reward manager, or between the turns of our agent loop."""
    loop = read(config, "actor_rollout_ref.rollout.agent.default_agent_loop")
    return bool(read(config, "reward.reward_manager.name") == REWARD_MANAGER or loop == AGENT_LOOP)


def _judges_on_gpus(options: GymOptions) -> bool:
    return options.device != "cpu" and options.gpus_per_judge > 0
