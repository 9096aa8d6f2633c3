# SPDX-License-Identifier: Apache-2.0
"""Policy losses, by the name they register under."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from verl_kernel.loss.rec import rec
from verl_kernel.loss.rec_options import PRESETS
from verl_kernel.loss.topr import topr_taper
from verl_kernel.loss.topr_options import TOPR
from verl_kernel.loss.turn_corrected import turn_corrected

LOSSES: dict[str, Callable[..., tuple[torch.Tensor, dict[str, Any]]]] = {
    "turn_corrected": turn_corrected,
    # One function: it looks up the preset by the name under which verl was told to call it.
    **dict.fromkeys(PRESETS, rec),
    TOPR: topr_taper,
}
