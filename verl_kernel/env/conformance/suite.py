# SPDX-License-Identifier: Apache-2.0
"""What every evaluator must do, as named cases: run them against another device or pool before trusting it.

    results = check_evaluator(lambda options, seed: LocalPool(options, seed))
    assert all(result.passed for result in results), [result for result in results if not result.passed]

An evaluator is what both pools of this package are: `evaluate`, `evaluate_many`, `stats`, `close`. Its judges must
follow the options they are given; a case that fails says what was expected and what came.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from verl_kernel.env.conformance.cases import CASES, OPTIONS, SEED, Evaluator, Unexpected
from verl_kernel.env.options import GymOptions


@dataclass(frozen=True)
class CaseResult:
    """One case's outcome."""

    name: str
    passed: bool
    detail: str
    """Why it failed; empty where it passed."""
    seconds: float


def check_evaluator(make: Callable[[GymOptions, int], Evaluator]) -> list[CaseResult]:
    """Run all cases against one evaluator.

    Args:
        make: builds it from options and a seed; it is closed at the end.

    Returns:
        One result per case, in order.
    """
    evaluator = make(OPTIONS, SEED)
    try:
        return [check_case(evaluator, name) for name in CASES]
    finally:
        evaluator.close()


def check_case(evaluator: Evaluator, name: str) -> CaseResult:
    """Run the case `name` of `CASES`; an evaluator made from `OPTIONS` and `SEED` may serve many."""
    start, detail = time.monotonic(), ""
    try:
        CASES[name](evaluator)
    except Exception as exc:  # noqa: BLE001  whatever an evaluator raises where it should not is the case's finding
        detail = str(exc) if isinstance(exc, Unexpected) else f"{type(exc).__name__}: {exc}"
    return CaseResult(name, not detail, detail, time.monotonic() - start)


__all__ = ["CASES", "OPTIONS", "SEED", "CaseResult", "Evaluator", "check_case", "check_evaluator"]
