# SPDX-License-Identifier: Apache-2.0
"""What a run of the SFT stage leaves in its folder: the state it goes on from, and the loss of every step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from verl_kernel.errors import ConfigError
from verl_kernel.files import replacing
from verl_kernel.remix.routing import Routing

LOSSES = "losses.jsonl"
STATE = "state.pt"


def save(routing: Routing, optimizer: torch.optim.Optimizer, fixed: Mapping[str, Any], folder: Path, step: int) -> None:
    """Write state.pt: the weights beside the frozen model, the optimizer, the options and the number of the step."""
    layers = {
        name: {key: weight.detach().cpu() for key, weight in layer.named_parameters(recurse=False)}
        for name, layer in routing.layers.items()
    }
    state = {"fixed": dict(fixed), "step": step, "layers": layers, "optimizer": optimizer.state_dict()}
    with replacing(folder / STATE) as part:
        torch.save(state, part)


def resume(routing: Routing, optimizer: torch.optim.Optimizer, fixed: Mapping[str, Any], folder: Path) -> int:
    """Take up the folder's state, if it has one; returns the steps that it has behind it.

    Raises:
        ConfigError: the state is of a run with other options.
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
        layer.load_state_dict(state["layers"][name], strict=False)  # the base is not in it
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


@contextmanager
def loss_log(folder: Path, done: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Open losses.jsonl, cut back to the first `done` steps, for lines that are on disk when the call returns."""
    path = folder / LOSSES
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    with replacing(path) as part:
        part.write_text("".join(f"{line}\n" for line in lines[:done]), encoding="utf-8")
    with path.open("a", encoding="utf-8") as file:

        def log(line: dict[str, Any]) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()

        yield log
