# SPDX-License-Identifier: Apache-2.0
"""The former name of `verl_kernel.figures`, kept for one release."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module

_MODULES = (
    "asked",
    "attempts",
    "bootstrap",
    "comparison",
    "figures",
    "passing",
    "record",
    "scoring",
    "views",
    "speed_of_light",
)

warnings.warn("verl_kernel.scores is now verl_kernel.figures: import that", DeprecationWarning, stacklevel=2)
# Python looks for `verl_kernel.scores.record` among the loaded modules once this file has run.
sys.modules.update({f"{__name__}.{name}": import_module(f"verl_kernel.figures.{name}") for name in _MODULES})
