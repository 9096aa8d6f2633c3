# SPDX-License-Identifier: Apache-2.0
"""Advantage estimators: pure tensor functions with verl's estimator signature, by the name they register under."""

from __future__ import annotations

from collections.abc import Callable

import torch

from verl_kernel.advantage.trloo import trloo
from verl_kernel.advantage.turn_grpo import turn_grpo

ESTIMATORS: dict[str, Callable[..., tuple[torch.Tensor, torch.Tensor]]] = {"trloo": trloo, "turn_grpo": turn_grpo}
