# SPDX-License-Identifier: Apache-2.0
"""A model of one training step on GPUs: tokens, evaluations, seconds and memory by part, from stated rates.

Nothing of it was measured on a GPU. It says which part limits a step and what another split would cost, not how long a
step takes: every rate can be replaced by one that was seen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from annotated_types import Interval
from omegaconf import DictConfig

from verl_kernel.env.gpus import GPUS, Gpu
from verl_kernel.errors import ConfigError
from verl_kernel.option_group import OptionGroup
from verl_kernel.preflight.hardware import Machine, devices
from verl_kernel.preflight.placement import TENSORS
from verl_kernel.preflight.resume import model_file
from verl_kernel.reward.options import parse_options
from verl_kernel.verl_keys import find, read

_MODEL = "actor_rollout_ref.model.path"
_Share = Annotated[float, Interval(gt=0, le=1)]
_Positive = Annotated[float, Interval(gt=0, le=1e6)]


@dataclass(frozen=True)
class Rates(OptionGroup):
    """What the model assumes; none of it was measured on a GPU."""

    NODE = "--rate"

    row_share: _Share = 0.5
    """Mean length of a row over the longest that the configuration allows."""
    gpu_s: _Positive = 4.8
    """Seconds of an evaluation on a GPU before and after its clock; judges that share the GPU spend them together."""
    profile_s: _Positive = 0.9
    """Of its clock, beside rounds: warm-up and profile. Meanwhile no other judge uses the GPU."""
    round_s: _Positive = 0.06
    """Of a round of its clock, by one protocol."""
    jitter: _Positive = 0.0115
    """Standard deviation of a round's time, as a share of it."""
    reference_s: _Positive = 2.0
    """Seconds in which a judge prepares a reference, once for a prompt."""
    worker_s: _Positive = 4.0
    """Seconds of an evaluation on a processor: of a prefilter's worker, or of a judge without a GPU."""
    refused_share: _Share = 0.5
    """Share of candidates that a prefilter refuses."""
    bandwidth_share: _Share = 0.6
    """Share of a GPU's bandwidth that decoding reaches."""
    tail: _Positive = 1.3
    """Seconds of generating over those with full batches: the last trajectories are decoded nearly alone."""
    flops_share: _Share = 0.4
    """Share of a GPU's 16-bit peak that training reaches."""
    link_gbs: _Positive = 400.0
    """Between GPUs of a node, in 1e9 bytes per second."""
    host_gbs: _Positive = 25.0
    """Between a GPU and the host."""


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a transformer with grouped attention, as its `config.json` names them."""

    hidden: int
    layers: int
    intermediate: int
    heads: int
    kv_heads: int
    head: int = 128
    vocabulary: int = 151936
    tied: bool = False

    @property
    def parameters(self) -> float:
        """Return how many there are."""
        attention = self.hidden * self.head * (2 * self.heads + 2 * self.kv_heads)
        embedding = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return float(self.layers * (attention + 3 * self.hidden * self.intermediate) + embedding)

    @property
    def kv_bytes(self) -> int:
        """Return the bytes of a token in vLLM's cache."""
        return 4 * self.layers * self.kv_heads * self.head


SHAPES = {
    "0.6b": ModelShape(1024, 28, 3072, 16, 8, tied=True),
    "1.7b": ModelShape(2048, 28, 6144, 16, 8, tied=True),
    "4b": ModelShape(2560, 36, 9728, 32, 8, tied=True),
    "8b": ModelShape(4096, 36, 12288, 32, 8),
    "14b": ModelShape(5120, 40, 17408, 40, 8),
    "32b": ModelShape(5120, 64, 25600, 64, 8),
}
"""Qwen3's dense models, by the size in their names; drkernel-8b and drkernel-14b are made of two of them."""


@dataclass(frozen=True)
class GpuSplit:
    """What a step does and on how many GPUs."""

    trainers: int
    judges: int
    judge_gpus: float
    workers: int
    """Of the prefilter; 0 without one."""
    width: float
    """Of the intervals with which a clock ends."""
    prompts: int
    trajectories: int
    turns: int
    prompt: int
    response: int
    tensors: int
    utilization: float
    most_requests: int
    fused: bool


@dataclass(frozen=True)
class StepPlan:
    """The parts of a step in seconds, and of a trainer's GPU in GB."""

    tokens: float
    evaluations: int
    seconds: Mapping[str, float]
    memory: Mapping[str, float]

    @property
    def step_s(self) -> float:
        """Return the seconds of a step."""
        return sum(self.seconds.values())

    @property
    def judging_share(self) -> float:
        """Return the share of a step in which only judging goes on."""
        return self.seconds[_JUDGING] / self.step_s

    @property
    def limit(self) -> str:
        """Return the longest part."""
        return max(self.seconds, key=lambda part: self.seconds[part])


_JUDGING = "judging beyond generating"
REMEDIES = {
    _JUDGING: "a prefilter, two judges a GPU, a larger timing_width, or more GPUs that judge for fewer that train",
    "generating": "more trainers, shorter answers, or a higher gpu_memory_utilization",
    "log-probs": "more trainers, or mismatch=bypass",
    "update": "more trainers, or fewer rollouts",
    "gathering weights": "fewer rows, or longer ones",
    "offloading": "param_offload=false and optimizer_offload=false where GPUs have room",
}


def split_of(config: DictConfig) -> GpuSplit:
    """Return what a configuration asks for."""
    options = parse_options(find(config, "kernelgym"))
    rollout = "actor_rollout_ref.rollout"
    return GpuSplit(
        trainers=devices(config, "trainer"),
        judges=options.env.num_judges,
        judge_gpus=options.env.num_judges * (options.env.gpus_per_judge if options.env.device != "cpu" else 0.0),
        workers=options.env.prefilter_judges if options.env.prefilter != "off" else 0,
        width=options.env.timing_width,
        prompts=read(config, "data.train_batch_size"),
        trajectories=read(config, "data.train_batch_size") * read(config, f"{rollout}.n"),
        turns=options.rollout.max_turns,
        prompt=read(config, "data.max_prompt_length"),
        response=read(config, "data.max_response_length"),
        tensors=read(config, TENSORS),
        utilization=read(config, f"{rollout}.gpu_memory_utilization"),
        most_requests=read(config, f"{rollout}.max_num_seqs"),
        fused=read(config, "actor_rollout_ref.model.use_fused_kernels"),
    )


def shape_of(config: DictConfig) -> ModelShape:
    """Return the sizes of the model, by its `config.json`, or by its name if that is not here.

    Raises:
        ConfigError: neither tells.
    """
    path = read(config, _MODEL)
    try:
        model = json.loads(model_file(path).read_text())
        head = model.get("head_dim") or model["hidden_size"] // model["num_attention_heads"]
        return ModelShape(
            model["hidden_size"],
            model["num_hidden_layers"],
            model["intermediate_size"],
            model["num_attention_heads"],
            model.get("num_key_value_heads", model["num_attention_heads"]),
            head,
            model["vocab_size"],
            bool(model.get("tie_word_embeddings", False)),
        )
    except (OSError, ValueError, KeyError):
        named = re.findall(r"\d+(?:\.\d+)?b\b", path.lower())
        if named and named[-1] in SHAPES:
            return SHAPES[named[-1]]
    raise ConfigError(
        f"{_MODEL} is {path}, which is not on this machine, and its name holds no size of {', '.join(SHAPES)}: name a "
        "folder with its config.json"
    )


def gpu_of(machine: Machine) -> Gpu:
    """Return the GPU that a description names.

    Raises:
        ConfigError: nothing is known of it.
    """
    name = machine.description.rpartition("-")[0].rpartition("x")[2].lower()
    if name not in GPUS:
        raise ConfigError(
            f"--machine names a {name.upper() or 'machine'}, of which no rates are known: {', '.join(GPUS)}"
        )
    return GPUS[name]


def plan(split: GpuSplit, shape: ModelShape, gpu: Gpu, gpu_gb: float, rates: Rates) -> StepPlan:
    """Return the seconds and the memory of a step.

    Raises:
        ConfigError: the model's weights leave vLLM no room.
    """
    size, trainers = shape.parameters, split.trainers
    row = rates.row_share * (split.prompt + split.response)
    tokens = split.trajectories * row
    generating = _generating_s(split, shape, gpu, gpu_gb, rates)
    # Trajectories take turns at judging and generating, side by side: the slower of both decides.
    judging = max(0.0, _judging_s(split, rates) - generating) + _last_s(split, rates)
    peak = trainers * gpu.half_tflops * 1e12 * rates.flops_share
    attention = 2 * shape.layers * shape.heads * shape.head * row**2 * split.trajectories
    micro_batches = split.trajectories / trainers
    passed = (trainers - 1) / trainers / (rates.link_gbs * 1e9)
    return StepPlan(
        tokens,
        split.trajectories * split.turns,
        {
            "generating": generating,
            _JUDGING: judging,
            "log-probs": (2 * size * tokens + attention) / peak,
            # Forward, forward again for the checkpoints, backward twice; attention's backward is two and a half.
            "update": (8 * size * tokens + 4.5 * attention) / peak,
            # bfloat16 for each of three passes, and float32 gradients back.
            "gathering weights": micro_batches * (3 * 2 + 4) * size * passed,
            # Weights and both moments of Adam, there and back.
            "offloading": 2 * 12 * size / trainers / (rates.host_gbs * 1e9),
        },
        memory_of(split, shape, gpu_gb),
    )


def memory_of(split: GpuSplit, shape: ModelShape, gpu_gb: float) -> dict[str, float]:
    """Return the parts of a trainer's GPU in GB, those of vLLM apart.

    Raises:
        ConfigError: the model's weights leave vLLM no room.
    """
    row = split.prompt + split.response
    return {
        "weights, gradients and Adam": 16e-9 * shape.parameters / split.trainers,
        "activations of the longest row": 2e-9 * shape.layers * shape.hidden * row,
        "logits of the longest row": 0.0 if split.fused else 4e-9 * shape.vocabulary * row,
        "vLLM's weights": 2e-9 * shape.parameters / split.tensors,
        "vLLM's cache": 1e-9 * shape.kv_bytes * _cached_tokens(split, shape, gpu_gb) / split.tensors,
    }


_ACTIVATIONS_GB = 4.0
"""Of vLLM's share of a GPU, for activations and CUDA graphs."""


def _cached_tokens(split: GpuSplit, shape: ModelShape, gpu_gb: float) -> float:
    """Return how many tokens the cache of a replica of vLLM holds."""
    room = split.tensors * (split.utilization * gpu_gb - _ACTIVATIONS_GB) * 1e9 - 2 * shape.parameters
    if room <= 0:
        raise ConfigError(
            f"actor_rollout_ref.rollout.gpu_memory_utilization x {gpu_gb:g} GB does not hold the model's "
            f"{2e-9 * shape.parameters:.0f} GB: raise it, or {TENSORS}"
        )
    return room / shape.kv_bytes


def _generating_s(split: GpuSplit, shape: ModelShape, gpu: Gpu, gpu_gb: float, rates: Rates) -> float:
    replicas = split.trainers / split.tensors
    # While rows grow, half of their length is cached on average.
    cached = rates.row_share * (split.prompt + split.response / 2)
    room = _cached_tokens(split, shape, gpu_gb) / cached
    together = max(1.0, min(split.trajectories / replicas, room, split.most_requests))
    read_bytes = 2 * shape.parameters + together * cached * shape.kv_bytes
    token_s = read_bytes / (split.tensors * gpu.bandwidth_gbs * 1e9 * rates.bandwidth_share)
    return rates.tail * split.trajectories * rates.row_share * split.response / replicas / together * token_s


def _clock_s(split: GpuSplit, rates: Rates) -> float:
    """Return the seconds for which a clock has a GPU alone: 10 to 100 rounds, the first 10 by a second protocol too."""
    # The 95 % interval of a median of n normal times has a width of 4.91 standard deviations over the root of n.
    rounds = min(100.0, max(10.0, (4.91 * rates.jitter / split.width) ** 2))
    return rates.profile_s + rates.round_s * (rounds + 10)


def _judging_s(split: GpuSplit, rates: Rates) -> float:
    evaluations = float(split.trajectories * split.turns)
    if not split.judge_gpus:
        return evaluations * rates.worker_s / split.judges
    on_workers = evaluations * rates.worker_s / split.workers if split.workers else 0.0
    judged = evaluations * (1 - rates.refused_share) if split.workers else evaluations
    # The judges of a GPU do all else side by side, but a clock keeps the others from the GPU altogether.
    judge_s = rates.gpu_s * split.judge_gpus / split.judges + _clock_s(split, rates)
    return max(on_workers, judged * judge_s / split.judge_gpus + split.prompts * rates.reference_s / split.judges)


def _last_s(split: GpuSplit, rates: Rates) -> float:
    """Return the seconds of the last evaluation, beside which nothing is generated."""
    if not split.judge_gpus:
        return rates.worker_s
    on_gpu = rates.gpu_s + _clock_s(split, rates) * split.judges / split.judge_gpus
    return on_gpu + (rates.worker_s if split.workers else 0.0)


def choices(split: GpuSplit, nodes: int) -> dict[str, GpuSplit]:
    """Return other splits of the same GPUs, by what to set.

    Args:
        split: what the configuration asks for.
        nodes: nodes of the machine; trainers of several nodes stay as they are.
    """
    if not split.judge_gpus:
        return {}
    prefilter = "off" if split.workers else "cpu kernelgym.prefilter_judges=16"
    width, gpus = 0.01 if split.width > 0.01 else 0.05, round(split.judge_gpus)
    share, judges = (1, gpus) if split.judges > gpus else (0.5, 2 * gpus)
    splits = {
        f"kernelgym.prefilter={prefilter}": replace(split, workers=0 if split.workers else 16),
        f"kernelgym.timing_width={width}": replace(split, width=width),
        f"kernelgym.gpus_per_judge={share} kernelgym.num_judges={judges}": replace(split, judges=judges),
    }
    less = split.trainers // 2
    if nodes == 1 and less and less % split.tensors == 0:
        more = split.judge_gpus + split.trainers - less
        judges = round(more * split.judges / split.judge_gpus)
        key = f"trainer.n_gpus_per_node={less} kernelgym.num_judges={judges}"
        splits[key] = replace(split, trainers=less, judges=judges, judge_gpus=more)
    return splits
