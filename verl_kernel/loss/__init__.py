# SPDX-License-Identifier: Apache-2.0
"""Policy losses, by the name they register under."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from verl_kernel.loss.turn_corrected import turn_corrected

LOSSES: dict[str, Callable[..., tuple[torch.Tensor, dict[str, Any]]]] = {"turn_corrected": turn_corrected}
