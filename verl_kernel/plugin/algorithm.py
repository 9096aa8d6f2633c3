# SPDX-License-Identifier: Apache-2.0
"""Extends verl's algorithm node by our estimators' nodes: the class that `algorithm._target_` names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from verl.trainer.config import AlgoConfig


@dataclass
class KernelAlgoConfig(AlgoConfig):  # type: ignore[misc]
    """`AlgoConfig` with a further node for each family of our estimators."""

    trloo: dict[str, Any] = field(default_factory=dict)
    """Keys of `advantage.options.TrlooOptions`, read by every turn-level estimator."""
    rec: dict[str, Any] = field(default_factory=dict)
    """Keys of `advantage.options.RecOptions`, read by `asymre_shift`, `opmd_baseline` and `red_drop_balance`."""
    topr: dict[str, Any] = field(default_factory=dict)
    """Keys of `advantage.topr.ToprOptions`, read by `topr_signed`."""
    ada: dict[str, Any] = field(default_factory=dict)
    """Keys of `adaptive.options.AdaOptions`, read where rollouts are drawn by need."""
