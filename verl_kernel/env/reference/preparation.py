# SPDX-License-Identifier: Apache-2.0
"""Facts learnt about a reference when it was built and checked: plain data, all of which can be stored."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from verl_kernel.env.machine.roofline import Demand
from verl_kernel.env.reference.value import Value
from verl_kernel.env.reference.variation import Variation
from verl_kernel.env.trace import TraceEvent
from verl_kernel.env.weights import Constants


@dataclass(frozen=True)
class Traits:
    """Properties of a reference that its first forwards showed."""

    mutates_inputs: bool
    is_finite: bool
    """Whether its outputs are finite."""
    is_sized: bool
    """Whether sizes differ between draws."""
    is_switchable: bool
    """Whether its outputs are the same, bit for bit, in train mode and in eval mode."""
    moves_values: bool
    """Whether its outputs are values of its inputs and weights, and it computes only which ones (`moved_values`)."""
    may_crash: bool
    """Whether integers out of range end the process (`crashes`)."""
    adds_long_exponents: bool
    """Whether products of exponentials have long exponents on drawn inputs."""
    variation: Variation
    constants: Constants
    """Weights that were constant after construction and were given other values."""
    structured: tuple[str, ...]
    """Parameters that started with a structure and were given other values (`structured`)."""
    input_bytes: int
    """Bytes of shared memory reserved for a trial's inputs; `output_bytes` likewise."""
    output_bytes: int
    smallest_scale: float | None
    """Smallest scale of a row or column in comparisons of outputs (`compare`)."""
    task_flags: list[str]
    """Reasons why it is a poor task (`EvalResult.task_flags`)."""


@dataclass(frozen=True)
class Preparation:
    """Data from which another judge can use the same reference without preparing it again."""

    init: Value
    """Arguments of the model's constructor."""
    state: dict[str, torch.Tensor]
    """Parameters and buffers of the model, changed where they started constant."""
    events: list[TraceEvent]
    """Trace of a forward."""
    demand: Demand
    """Least memory traffic and work of a forward of these sizes."""
    traits: Traits
