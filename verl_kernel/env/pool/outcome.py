# SPDX-License-Identifier: Apache-2.0
"""A verdict as a pool holds it: beside the judge's result, how the pool came by it."""

from __future__ import annotations

from dataclasses import dataclass, field

from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import EvalError, EvalResult, EvalStatus


@dataclass(frozen=True)
class Outcome:
    """What all who asked for one evaluation get, before it carries their name for the candidate."""

    result: EvalResult
    """As the judge made it."""
    attempts: int
    queue_seconds: float
    """From the request to its first judge."""
    env: dict[str, str] = field(default_factory=dict)
    """What the pool adds to the result's `env`."""

    def answer(self, request: EvalRequest, lost: int) -> EvalResult:
        """The answer to one request; `lost` attempts at it went down with another pool."""
        return self.result.model_copy(
            update={
                "task_id": request.task.task_id,
                "task_hash": request.task.text_hash,
                "kernel": request.kernel,
                "attempts": self.attempts + lost,
                "queue_seconds": self.queue_seconds,
                "env": {**self.result.env, **self.env},
            }
        )


def not_judged(request: EvalRequest, failure: Exception, attempts: int) -> EvalResult:
    """The result of an evaluation whose every attempt failed for reasons of ours."""
    error = EvalError(stage="pool", type=type(failure).__name__, message=str(failure)[:2000])
    return EvalResult(
        task_id=request.task.task_id, task_hash=request.task.text_hash, kernel=request.kernel,
        status=EvalStatus.INFRA_ERROR, error=error, attempts=attempts,
    )  # fmt: skip
