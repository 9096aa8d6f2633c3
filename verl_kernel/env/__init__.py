# SPDX-License-Identifier: Apache-2.0
"""The gym: judges a candidate's source against a `Task` and returns an `EvalResult`.

It imports torch and triton, never verl, and ray only in `pool.cluster`. Code outside this package imports only the
names below, from here. Each name is loaded at its first use, so that options and results do not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verl_kernel.env.backends import refuse_simulating as refuse_simulating
    from verl_kernel.env.backends import resolve_device as resolve_device
    from verl_kernel.env.clocks.statistics import is_parity as is_parity
    from verl_kernel.env.compilation.targets import target_limits as target_limits
    from verl_kernel.env.conformance.suite import check_evaluator as check_evaluator
    from verl_kernel.env.gpus import Gpu as Gpu
    from verl_kernel.env.gpus import gpu_named as gpu_named
    from verl_kernel.env.isolation_probe import granted_isolation as granted_isolation
    from verl_kernel.env.judge.judge import Judge as Judge
    from verl_kernel.env.judge.trials.plan import TrialChoice as TrialChoice
    from verl_kernel.env.options import GymOptions as GymOptions
    from verl_kernel.env.parse import parse_once as parse_once
    from verl_kernel.env.pool.cluster.gym import KernelGym as KernelGym
    from verl_kernel.env.pool.cluster.router import CONTROL as CONTROL
    from verl_kernel.env.pool.judge_process import JudgeProcess as JudgeProcess
    from verl_kernel.env.pool.local import LocalPool as LocalPool
    from verl_kernel.env.pool.stats import PoolStats as PoolStats
    from verl_kernel.env.reference.defects.findings import Audit as Audit
    from verl_kernel.env.reference.defects.findings import Finding as Finding
    from verl_kernel.env.reference.kinds import KINDS as KINDS
    from verl_kernel.env.result import ONLY_THIS_SIZE as ONLY_THIS_SIZE
    from verl_kernel.env.result import Change as Change
    from verl_kernel.env.result import CompiledKernel as CompiledKernel
    from verl_kernel.env.result import EvalError as EvalError
    from verl_kernel.env.result import EvalResult as EvalResult
    from verl_kernel.env.result import EvalStatus as EvalStatus
    from verl_kernel.env.result import ForwardProfile as ForwardProfile
    from verl_kernel.env.result import LaunchProfile as LaunchProfile
    from verl_kernel.env.result import MemoryFinding as MemoryFinding
    from verl_kernel.env.result import SizeVerdict as SizeVerdict
    from verl_kernel.env.result import Timing as Timing
    from verl_kernel.env.result import Trials as Trials
    from verl_kernel.env.result import TrueSize as TrueSize
    from verl_kernel.env.static_check import check as check
    from verl_kernel.env.task import Task as Task

_MODULES = {
    "backends": "refuse_simulating resolve_device",
    "clocks.statistics": "is_parity",
    "compilation.targets": "target_limits",
    "conformance.suite": "check_evaluator",
    "gpus": "Gpu gpu_named",
    "isolation_probe": "granted_isolation",
    "judge.judge": "Judge",
    "judge.trials.plan": "TrialChoice",
    "options": "GymOptions",
    "parse": "parse_once",
    "pool.cluster.gym": "KernelGym",
    "pool.cluster.router": "CONTROL",
    "pool.judge_process": "JudgeProcess",
    "pool.local": "LocalPool",
    "pool.stats": "PoolStats",
    "reference.defects.findings": "Audit Finding",
    "reference.kinds": "KINDS",
    "result": "ONLY_THIS_SIZE Change CompiledKernel EvalError EvalResult EvalStatus ForwardProfile LaunchProfile "
    "MemoryFinding SizeVerdict Timing Trials TrueSize",
    "static_check": "check",
    "task": "Task",
}
"""The names that each module gives."""
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
