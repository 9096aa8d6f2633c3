# SPDX-License-Identifier: Apache-2.0
"""Short ways to write results and turns in tests."""

from typing import Any

from verl_kernel.env.result import EvalResult, EvalStatus
from verl_kernel.reward.record import TurnRecord


def correct(speedup: float | None = 1.0, coverage: float | None = 1.0, **fields: Any) -> EvalResult:
    measured = {"task_id": "t", "speedup": speedup, "time_coverage": coverage, "number_coverage": coverage}
    measured |= {"timing_source": "simulated"} | fields
    return EvalResult(status=EvalStatus.OK, compiled=True, correctness=True, decoy_kernel=False, **measured)


def timed(speedup: float | None, low: float | None, **fields: Any) -> EvalResult:
    """A correct result of a GPU's clock."""
    return correct(speedup, **{"speedup_low": low, "timing_source": "cuda_event"} | fields)


def failed(status: str = "incorrect", **fields: Any) -> EvalResult:
    return EvalResult(task_id="t", **({"status": EvalStatus(status), "correctness": False} | fields))


def turn(result: EvalResult, start: int = 0, stop: int = 1, reward: float = 0.0) -> TurnRecord:
    return TurnRecord(start=start, stop=stop, reward=reward, result=result)
