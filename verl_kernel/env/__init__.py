# SPDX-License-Identifier: Apache-2.0
"""The gym: judges candidate kernels. Imports torch and triton, never verl; ray only in the pool's files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verl_kernel.env.conformance import check_evaluator

__all__ = ["check_evaluator"]


def __getattr__(name: str) -> Any:
    """Import the conformance suite when it is asked for: this package must stay cheap to import."""
    if name == "check_evaluator":
        from verl_kernel.env.conformance import check_evaluator

        return check_evaluator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
