# SPDX-License-Identifier: Apache-2.0
"""verl's policy-loss node with room for ours: the class that `policy_loss._target_` names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from verl.workers.config import PolicyLossConfig


@dataclass
class TurnPolicyLossConfig(PolicyLossConfig):  # type: ignore[misc]
    """`PolicyLossConfig` and the keys of `options.TurnCorrectionOptions`."""

    turn_correction: dict[str, Any] = field(default_factory=dict)
