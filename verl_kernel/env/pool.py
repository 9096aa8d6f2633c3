# SPDX-License-Identifier: Apache-2.0
"""Many judges behind one interface: `LocalPool` on this machine, `KernelGym` on a Ray cluster.

Both retry an evaluation that failed for reasons of ours once, on another judge if there is one, and then return
`infra_error`; both raise TaskError for a reference that cannot serve. A deadline starts when a judge takes the job.
"""

from __future__ import annotations

from verl_kernel.env.pool.cluster.gym import KernelGym
from verl_kernel.env.pool.local import LocalPool
from verl_kernel.env.pool.scheduling.tries import ATTEMPTS
from verl_kernel.env.pool.stats import JudgeStats, PoolStats
from verl_kernel.env.request import Job

__all__ = ["ATTEMPTS", "Job", "JudgeStats", "KernelGym", "LocalPool", "PoolStats"]
