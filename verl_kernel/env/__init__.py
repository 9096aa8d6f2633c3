# SPDX-License-Identifier: Apache-2.0
"""The gym: judges candidate kernels. Imports torch and triton, never verl; ray only in `pool.cluster`.

A `Task` and a candidate's source go in, an `EvalResult` comes out. Whatever lies outside of this package imports the
names below, from here. Each is loaded when it is first asked for: options and results must not cost an import of torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verl_kernel.env.backends import refuse_interpreting, resolve_device
    from verl_kernel.env.clocks.statistics import is_parity
    from verl_kernel.env.conformance.suite import check_evaluator
    from verl_kernel.env.isolation_probe import granted_isolation
    from verl_kernel.env.judge.judge import Judge
    from verl_kernel.env.judge.trials.plan import KINDS
    from verl_kernel.env.options import GymOptions
    from verl_kernel.env.pool.cluster.gym import KernelGym
    from verl_kernel.env.pool.cluster.router import CONTROL
    from verl_kernel.env.pool.local import LocalPool
    from verl_kernel.env.pool.stats import PoolStats
    from verl_kernel.env.result import EvalError, EvalResult, EvalStatus, Trials
    from verl_kernel.env.static_check import check
    from verl_kernel.env.task import Task

_HOMES = {
    "CONTROL": "pool.cluster.router",
    "EvalError": "result",
    "EvalResult": "result",
    "EvalStatus": "result",
    "GymOptions": "options",
    "KINDS": "judge.trials.plan",
    "Judge": "judge.judge",
    "KernelGym": "pool.cluster.gym",
    "LocalPool": "pool.local",
    "PoolStats": "pool.stats",
    "Task": "task",
    "Trials": "result",
    "check": "static_check",
    "check_evaluator": "conformance.suite",
    "granted_isolation": "isolation_probe",
    "is_parity": "clocks.statistics",
    "refuse_interpreting": "backends",
    "resolve_device": "backends",
}

__all__ = [
    "CONTROL",
    "KINDS",
    "EvalError",
    "EvalResult",
    "EvalStatus",
    "GymOptions",
    "Judge",
    "KernelGym",
    "LocalPool",
    "PoolStats",
    "Task",
    "Trials",
    "check",
    "check_evaluator",
    "granted_isolation",
    "is_parity",
    "refuse_interpreting",
    "resolve_device",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
