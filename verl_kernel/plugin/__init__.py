# SPDX-License-Identifier: Apache-2.0
"""Entry point `verl.plugins`: verl imports this package in every process (driver and Ray workers).

The import registers our advantage estimators, policy losses, reward manager and agent loop as soon as verl's
registry of each exists, and if `VERL_PLATFORM=cpu` the CPU platform. verl reports a plugin that fails to load at DEBUG
only, so its failure is logged here at ERROR first.
"""

from __future__ import annotations

import logging

from verl_kernel.plugin.registration import (
    expected,
    missing,
    register,
    registered,
    states,
)
from verl_kernel.verl_names import AGENT_LOOP, REWARD_MANAGER

__all__ = ["AGENT_LOOP", "REWARD_MANAGER", "expected", "missing", "register", "registered", "states"]

logger = logging.getLogger(__name__)

try:
    register()
except Exception:
    # verl would hide an exception of any kind.
    logger.exception("verl_kernel could not register with verl")
    raise
