# SPDX-License-Identifier: Apache-2.0
"""What is checked before a run starts: recipes name `PreflightCallback` under `hydra.callbacks`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verl_kernel.preflight.callback import PreflightCallback, preflight

__all__ = ["PreflightCallback", "preflight"]


def __getattr__(name: str) -> Any:
    """Import the callback when it is asked for: `doctor` needs `machine` where Hydra may be missing or damaged."""
    if name in __all__:
        from verl_kernel.preflight import callback

        return getattr(callback, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
