# SPDX-License-Identifier: Apache-2.0
"""Policy losses, by their registered names."""

from __future__ import annotations

from verl_kernel.loss import rec, topr, turn_corrected  # noqa: F401
from verl_kernel.loss.policy_loss import LOSSES

__all__ = ["LOSSES"]
