# SPDX-License-Identifier: Apache-2.0
"""Checks before a run starts: recipes name `PreflightCallback` under `hydra.callbacks`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verl_kernel.preflight.checks import PreflightCallback, preflight

__all__ = ["PreflightCallback", "preflight"]


def __getattr__(name: str) -> Any:
    """Import the callback on demand: `doctor` needs `machine` even if Hydra is missing or damaged."""
    if name in __all__:
        from verl_kernel.preflight import checks

        return getattr(checks, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
