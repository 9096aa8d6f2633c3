# SPDX-License-Identifier: Apache-2.0
"""The machine of a run: this one, or one that `verl-kernel preflight --machine` describes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from omegaconf import DictConfig

from verl_kernel import cpu
from verl_kernel.errors import ConfigError
from verl_kernel.option_group import nearest
from verl_kernel.preflight import machine as facts
from verl_kernel.verl_keys import read

FORM = "GPUs, model and memory, as in 8xH100-80GB, or 2x8xH100-80GB for two such nodes"
MODELS = (
    *("A100", "A800", "H100", "H800", "H20", "H200", "GH200", "B200", "B300", "GB200", "GB300"),
    *("L4", "L20", "L40", "L40S", "A10", "A10G", "A16", "A30", "A40", "A4000", "A5000", "A6000", "V100", "T4", "P4"),
    *("RTX3090", "RTX4090", "RTX5090", "RTX6000", "MI210", "MI250", "MI250X", "MI300X", "MI325X", "MI350X", "MI355X"),
)
"""Names by which a description is told from a slip; nothing but the memory is taken from it."""
ANY_MODEL = "GPU"
"""What a description calls any other model."""
_LEAST_GB, _MOST_GB = 4, 1024
_DESCRIBED = re.compile(r"(?:(\d+)x)?(\d+)x([A-Za-z][A-Za-z0-9_]*)-(\d+)GB")
_ADDRESS = "ray_kwargs.ray_init.address"


@dataclass(frozen=True)
class Machine:
    """The facts about a machine that a run depends on."""

    platform: str
    """`cpu` or `cuda`."""
    gpus: int
    """GPUs of a node."""
    nodes: int = 1
    gpu_mb: int | None = None
    """Memory of one GPU; None if the driver was not asked."""
    cluster: str = ""
    """Address of the Ray cluster that the run joins, which is not checked; empty if the run starts its own."""
    driver: str = ""
    """Version of NVIDIA's driver; empty if there is none, or it does not matter."""
    description: str = ""
    """Description of a machine about which nothing else is known; empty for this machine."""

    def __str__(self) -> str:
        return f"the described machine ({self.description})" if self.description else "this machine"


def this_platform() -> str:
    """Return the platform of this machine, which the environment names."""
    return "cpu" if cpu.is_active() else "cuda"


def this_machine(config: DictConfig) -> Machine:
    """Return this machine, for a run of this configuration."""
    import torch

    address = read(config, _ADDRESS) or os.environ.get("RAY_ADDRESS", "")
    return Machine(
        platform=this_platform(),
        gpus=torch.cuda.device_count(),
        driver="" if cpu.is_active() else facts.driver(),
        cluster="" if address == "local" else address,
    )


def devices(config: DictConfig, node: str) -> int:
    """Return how many GPUs (on a CPU, logical ones) a node of the configuration asks for."""
    return int(read(config, f"{node}.nnodes")) * int(read(config, f"{node}.n_gpus_per_node"))


def described(text: str) -> Machine:
    """Return the machine of a description.

    Raises:
        ConfigError: the text describes no machine.
    """
    match = _DESCRIBED.fullmatch(text)
    if match is None:
        raise ConfigError(f"--machine is {text!r}: describe {FORM}")
    nodes, gpus, model, memory = match.groups(default="1")
    if not int(nodes) or not int(gpus):
        raise ConfigError(f"--machine is {text!r}, which has no GPU: describe {FORM}")
    if model.upper() not in (*MODELS, ANY_MODEL):
        raise ConfigError(
            f"--machine is {text!r}, and no GPU called {model} is known here; {nearest(model, MODELS)}names are "
            f"{', '.join(MODELS)}, or {ANY_MODEL} for any other, as in {gpus}x{ANY_MODEL}-{memory}GB"
        )
    if not _LEAST_GB <= int(memory) <= _MOST_GB:
        raise ConfigError(
            f"--machine is {text!r}, and no GPU has {memory} GB: give the memory of one GPU, {_LEAST_GB} to {_MOST_GB}"
        )
    return Machine("cuda", int(gpus), int(nodes), gpu_mb=int(memory) * 1000, description=text)
