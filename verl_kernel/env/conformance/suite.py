# SPDX-License-Identifier: Apache-2.0
"""The conformance suite: named cases to run against a new device or pool before its verdicts are trusted.

    results = check_evaluator(lambda options, seed: LocalPool(options, seed))
    assert all(result.passed for result in results), [result for result in results if not result.passed]

An evaluator has the methods `evaluate`, `evaluate_many`, `stats` and `close`, like both pools of this package. Its
judges must follow the given options. The detail of a failed case says what was expected and what came.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from verl_kernel.env.conformance.cases import CASES, OPTIONS, SEED, Evaluator, Unexpected
from verl_kernel.env.options import GymOptions


@dataclass(frozen=True)
class CaseResult:
    """The result of one case."""

    name: str
    passed: bool
    detail: str
    """Why it failed; empty if it passed."""
    seconds: float


def check_evaluator(make: Callable[[GymOptions, int], Evaluator]) -> list[CaseResult]:
    """Run all cases against one evaluator.

    Args:
        make: builds the evaluator from options and a seed; it is closed at the end.

    Returns:
        One result per case, in the order of `CASES`.
    """
    evaluator = make(OPTIONS, SEED)
    try:
        return [check_case(evaluator, name) for name in CASES]
    finally:
        evaluator.close()


def check_case(evaluator: Evaluator, name: str) -> CaseResult:
    """Run the case `name` of `CASES` against an evaluator made from `OPTIONS` and `SEED`; it can serve many cases."""
    start, detail = time.monotonic(), ""
    try:
        CASES[name](evaluator)
    except Exception as exc:  # noqa: BLE001  any exception of the evaluator under test fails the case
        detail = str(exc) if isinstance(exc, Unexpected) else f"{type(exc).__name__}: {exc}"
    return CaseResult(name, not detail, detail, time.monotonic() - start)


__all__ = ["CASES", "OPTIONS", "SEED", "CaseResult", "Evaluator", "check_case", "check_evaluator"]
