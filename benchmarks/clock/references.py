# SPDX-License-Identifier: Apache-2.0
"""Reference programs: their files, and what one forward of them runs, without a GPU and without memory for tensors."""

from __future__ import annotations

import json
import runpy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from verl_kernel.env.devices.op_recorder import WHOLE, OpRecorder, whole
from verl_kernel.env.trace import TraceEvent


@dataclass(frozen=True)
class Published:
    """A reference program with a published time."""

    level: str
    path: Path
    ms: float

    @property
    def number(self) -> int:
        """The number that its file name begins with."""
        return int(self.path.name.partition("_")[0])


def read_published(folder: Path, times: Path, left_out: set[tuple[str, int]]) -> list[Published]:
    """The programs of a folder that have a time, in order, less those left out by level and number.

    Args:
        folder: with the folders `level1`, `level2`, ...
        times: JSON of milliseconds by level and file name, or of objects with the milliseconds as `mean`.
        left_out: pairs of level and number.
    """
    found = []
    for level, named in sorted(json.loads(times.read_text()).items()):
        for name, value in named.items():
            one = Published(level, folder / level / name, float(value["mean"] if isinstance(value, dict) else value))
            if one.path.is_file() and (level, one.number) not in left_out:
                found.append(one)
    return sorted(found, key=lambda one: (one.level, one.number))


@dataclass(frozen=True)
class Prediction:
    """A program's time in milliseconds by the model and by others."""

    program: Published
    events: list[TraceEvent]
    ours: float
    theirs: float
    blocks_per_sm: Mapping[str, int] = field(default_factory=dict)
    """Blocks that fit into an SM, by kernel."""

    @property
    def ratio(self) -> float:
        """Of predicted to the other time."""
        return self.ours / self.theirs


class WholeLayers(TorchFunctionMode):
    """Lets recurrent layers be recorded as one op each."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Run a function of torch."""
        return whole(func, args, kwargs or {}) if func in WHOLE else func(*args, **(kwargs or {}))


def built(path: Path, device: str) -> tuple[Any, list[Any]]:
    """The model of a file, in training mode as the published times have it, and its inputs, on a device."""
    module: Mapping[str, Any] = runpy.run_path(str(path))
    with torch.device(device):
        model = module["Model"](*module["get_init_inputs"]())
        inputs = module["get_inputs"]()
    on_device = [value.to(device) if isinstance(value, torch.Tensor) else value for value in inputs]
    return model.to(device), on_device


def forward_events(path: Path) -> list[TraceEvent]:
    """What a GPU would run for one forward of a reference, from its shapes alone."""
    with torch.no_grad():
        model, inputs = built(path, "meta")
        events: list[TraceEvent] = []
        with OpRecorder(events), WholeLayers():
            model(*inputs)
    return events
