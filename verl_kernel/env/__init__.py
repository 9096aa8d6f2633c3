# SPDX-License-Identifier: Apache-2.0
"""The gym: judges a candidate's source against a `Task` and returns an `EvalResult`.

It imports torch and triton, never verl, and ray only in `pool.cluster`. Code outside this package imports only the
names below, from here. Each name is loaded at its first use, so that options and results do not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verl_kernel.env.backends import refuse_simulating, resolve_device
    from verl_kernel.env.clocks.statistics import is_parity
    from verl_kernel.env.compilation.targets import target_limits
    from verl_kernel.env.conformance.suite import check_evaluator
    from verl_kernel.env.gpus import Gpu, gpu_named
    from verl_kernel.env.isolation_probe import granted_isolation
    from verl_kernel.env.judge.judge import Judge
    from verl_kernel.env.judge.trials.plan import TrialChoice
    from verl_kernel.env.options import GymOptions
    from verl_kernel.env.parse import parse_once
    from verl_kernel.env.pool.cluster.gym import KernelGym
    from verl_kernel.env.pool.cluster.router import CONTROL
    from verl_kernel.env.pool.judge_process import JudgeProcess
    from verl_kernel.env.pool.local import LocalPool
    from verl_kernel.env.pool.stats import PoolStats
    from verl_kernel.env.reference.defects.findings import Audit, Finding
    from verl_kernel.env.reference.kinds import KINDS
    from verl_kernel.env.result import (
        Change,
        CompiledKernel,
        EvalError,
        EvalResult,
        EvalStatus,
        ForwardProfile,
        LaunchProfile,
        MemoryFinding,
        SizeVerdict,
        Timing,
        Trials,
        TrueSize,
    )
    from verl_kernel.env.static_check import check
    from verl_kernel.env.task import Task
    from verl_kernel.env.unnamed_sizes import other_sizes, with_other_sizes

_HOMES = {
    "Audit": "reference.defects.findings",
    "CONTROL": "pool.cluster.router",
    "Change": "result",
    "CompiledKernel": "result",
    "EvalError": "result",
    "EvalResult": "result",
    "EvalStatus": "result",
    "Finding": "reference.defects.findings",
    "ForwardProfile": "result",
    "Gpu": "gpus",
    "GymOptions": "options",
    "KINDS": "reference.kinds",
    "Judge": "judge.judge",
    "JudgeProcess": "pool.judge_process",
    "KernelGym": "pool.cluster.gym",
    "LaunchProfile": "result",
    "LocalPool": "pool.local",
    "MemoryFinding": "result",
    "PoolStats": "pool.stats",
    "Task": "task",
    "Timing": "result",
    "TrialChoice": "judge.trials.plan",
    "Trials": "result",
    "SizeVerdict": "result",
    "TrueSize": "result",
    "check": "static_check",
    "check_evaluator": "conformance.suite",
    "gpu_named": "gpus",
    "granted_isolation": "isolation_probe",
    "is_parity": "clocks.statistics",
    "other_sizes": "unnamed_sizes",
    "parse_once": "parse",
    "refuse_simulating": "backends",
    "resolve_device": "backends",
    "target_limits": "compilation.targets",
    "with_other_sizes": "unnamed_sizes",
}

__all__ = [
    "CONTROL",
    "KINDS",
    "Audit",
    "Change",
    "CompiledKernel",
    "EvalError",
    "EvalResult",
    "EvalStatus",
    "Finding",
    "ForwardProfile",
    "Gpu",
    "GymOptions",
    "Judge",
    "JudgeProcess",
    "KernelGym",
    "LaunchProfile",
    "LocalPool",
    "MemoryFinding",
    "PoolStats",
    "SizeVerdict",
    "Task",
    "Timing",
    "TrialChoice",
    "Trials",
    "TrueSize",
    "check",
    "check_evaluator",
    "gpu_named",
    "granted_isolation",
    "is_parity",
    "other_sizes",
    "parse_once",
    "refuse_simulating",
    "resolve_device",
    "target_limits",
    "with_other_sizes",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
