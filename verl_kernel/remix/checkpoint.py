# SPDX-License-Identifier: Apache-2.0
"""Files of the SFT stage in its run's folder: the state from which it continues, and the loss of every step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from verl_kernel.errors import ConfigError
from verl_kernel.files import replacing
from verl_kernel.remix.layers import Routing

LOSSES = "losses.jsonl"
STATE = "state.pt"


def save(routing: Routing, optimizer: torch.optim.Optimizer, fixed: Mapping[str, Any], folder: Path, step: int) -> None:
    """Write state.pt: the weights added to the frozen model, the optimizer, the options and the number of the step."""
    layers = {
        name: {key: weight.detach().cpu() for key, weight in layer.named_parameters(recurse=False)}
        for name, layer in routing.layers.items()
    }
    state = {"fixed": dict(fixed), "step": step, "layers": layers, "optimizer": optimizer.state_dict()}
    with replacing(folder / STATE) as part:
        torch.save(state, part)


def resume(routing: Routing, optimizer: torch.optim.Optimizer, fixed: Mapping[str, Any], folder: Path) -> int:
    """Load the folder's state, if it has one; return the number of finished steps.

    Raises:
        ConfigError: the state belongs to a run with other options.
    """
    if not (folder / STATE).exists():
        return 0
    state = torch.load(folder / STATE, map_location="cpu", weights_only=True)
    for key, value in fixed.items():
        if state["fixed"].get(key) != value:
            raise ConfigError(
                f"{folder} holds a run with {key} {state['fixed'].get(key)!r} instead of {value!r}: name another folder"
            )
    for name, layer in routing.layers.items():
        layer.load_state_dict(state["layers"][name], strict=False)  # the state does not contain the base weights
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


@contextmanager
def loss_log(folder: Path, finished_steps: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Truncate losses.jsonl to the first `finished_steps`; yield a function that appends a line and flushes it."""
    path = folder / LOSSES
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    with replacing(path) as part:
        part.write_text("".join(f"{line}\n" for line in lines[:finished_steps]), encoding="utf-8")
    with path.open("a", encoding="utf-8") as file:

        def log(line: dict[str, Any]) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()

        yield log
