# SPDX-License-Identifier: Apache-2.0
"""What was learnt about a reference when it was built and checked: data only, all of which can be stored."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from verl_kernel.env.machine.roofline import Demand
from verl_kernel.env.reference.value import Value
from verl_kernel.env.reference.variation import Variation
from verl_kernel.env.trace import TraceEvent
from verl_kernel.env.weights import Constants


@dataclass(frozen=True)
class Traits:
    """What its first forwards showed."""

    mutates_inputs: bool
    is_finite: bool
    """Whether its outputs are."""
    is_sized: bool
    """Whether sizes differ between draws."""
    is_switchable: bool
    """Whether its outputs are the same, bit for bit, in train mode and in eval mode."""
    variation: Variation
    constants: Constants
    """Weights that have other values than at their start."""
    input_bytes: int
    """Bytes of shared memory that a trial's inputs get; `output_bytes` likewise."""
    output_bytes: int
    least: float | None
    """Smallest scale of a row or column that outputs are compared with (`compare`)."""
    task_flags: list[str]
    """What makes it a poor task (`EvalResult.task_flags`)."""

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        constants = {name: list(value) for name, value in self.constants.items()}
        return {**asdict(self), "variation": self.variation.to_json(), "constants": constants}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Traits:
        """Read what `to_json` wrote."""
        constants = {name: (value, is_parameter) for name, (value, is_parameter) in data["constants"].items()}
        return cls(**{**data, "variation": Variation.from_json(data["variation"]), "constants": constants})


@dataclass(frozen=True)
class Preparation:
    """What another judge needs in order not to prepare the same reference again."""

    init: Value
    """Arguments of the model's constructor."""
    state: dict[str, torch.Tensor]
    """Its parameters and buffers, changed where they started constant."""
    events: list[TraceEvent]
    """What a forward runs."""
    demand: Demand
    """What a forward of these sizes cannot do without."""
    traits: Traits
