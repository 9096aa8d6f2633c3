# SPDX-License-Identifier: Apache-2.0
"""Extends verl's policy-loss node by our losses' nodes: the class that `policy_loss._target_` names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from verl.workers.config import PolicyLossConfig


@dataclass
class KernelPolicyLossConfig(PolicyLossConfig):  # type: ignore[misc]
    """`PolicyLossConfig` with a further node for each family of our losses."""

    turn_correction: dict[str, Any] = field(default_factory=dict)
    """Keys of `options.TurnCorrectionOptions`, read by `turn_corrected`."""
    rec: dict[str, Any] = field(default_factory=dict)
    """Keys of `options.RecLossOptions`, read by the losses of `options.PRESETS`."""
    topr: dict[str, Any] = field(default_factory=dict)
    """Keys of `options.ToprLossOptions`, read by `topr_taper`."""
