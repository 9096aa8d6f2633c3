# SPDX-License-Identifier: Apache-2.0
"""Workers without a GPU in front of a pool of GPUs (`kernelgym.prefilter: cpu`): what fails there costs no GPU time.

They judge a candidate by one trial on a CPU, behind the same gate and with the checks that only a CPU makes. A
refusal is final only where it holds on a GPU too (`is_final`). All else goes on to a GPU, which decides by itself: also
what a CPU cannot judge, such as a kernel of which the executor knows no definition, or for which it is too slow.
Nothing that these workers made (compiled kernels, times) is handed on: a process that ran the candidate made it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Generic

from verl_kernel.env.options import GymOptions
from verl_kernel.env.pool.dispatcher import Dispatcher
from verl_kernel.env.pool.scheduling.judge_handle import Handle
from verl_kernel.env.pool.stats import PrefilterStats
from verl_kernel.env.request import EvalRequest
from verl_kernel.env.result import OUT_OF_BOUNDS, EvalResult, EvalStatus
from verl_kernel.errors import EnvironmentNotReady, TaskError

_FINAL = tuple(map(EvalStatus, ("rejected_static", "unsafe", "incorrect", "hacking", "decoy")))
_WITHOUT_GPU = ("static", "wait")
"""Stages of an evaluation in which it does not use its GPU."""


def prefilter_options(options: GymOptions) -> GymOptions:
    """How the workers judge: by the pool's rules, with one trial and without what only a clock needs.

    Args:
        options: of the pool.
    """
    return replace(
        options, device="cpu", prefilter="off", num_judges=options.prefilter_judges, gpus_per_judge=0.0,
        judge_resources=None, require_idle_gpu=False, reference_mode="eager", correctness_trials=1, trial_choice=None,
        ablation=False, compile="all", true_size="auto", memory_checks="refuse",
    )  # fmt: skip


def is_final(result: EvalResult) -> bool:
    """Whether a GPU need not be asked.

    The gate, the compiler of the pool's target, wrong values or a fault in memory refused it. Other errors on a CPU,
    its time and its memory say little of a GPU.
    """
    stage, kind = ("", "") if result.error is None else (result.error.stage, result.error.type)
    is_refused = result.status is EvalStatus.COMPILE_ERROR and stage == "compile"
    return result.status in _FINAL or is_refused or kind == OUT_OF_BOUNDS


class Prefilter(Generic[Handle]):
    """The workers of a pool, and what they have saved it.

    Args:
        workers: their handles, none of them started.
        options: of the pool.
    """

    def __init__(self, workers: Sequence[Handle], options: GymOptions) -> None:
        self._pool: Dispatcher[Handle] = Dispatcher(workers, prefilter_options(options))
        self._passed = self._refused = self._undecided = self._timed = 0
        self._gpu_seconds = 0.0

    async def start(self) -> None:
        """Start the workers without waiting for them."""
        await self._pool.start()

    async def ready(self) -> None:
        """Return when all workers have started.

        Raises:
            EnvironmentNotReady: one of them cannot work.
        """
        await self._pool.ready()

    async def refusal(self, request: EvalRequest) -> EvalResult | None:
        """The verdict that ends an evaluation before it needs a GPU; None where a GPU has to decide."""
        try:
            result = await self._pool.judge(request)
        except (TaskError, EnvironmentNotReady):  # the pool's own judges say it in their words, or can do without
            self._undecided += 1
            return None
        if is_final(result):
            self._refused += 1
            return result
        self._passed += result.status is EvalStatus.OK
        self._undecided += result.status is not EvalStatus.OK
        return None

    def note(self, result: EvalResult) -> None:
        """Count the seconds for which a judge of the pool had its GPU."""
        if result.status is not EvalStatus.INFRA_ERROR:
            self._timed += 1
            self._gpu_seconds += sum(s for stage, s in result.stage_seconds.items() if stage not in _WITHOUT_GPU)

    async def forget(self) -> None:
        """Forget all verdicts."""
        await self._pool.forget()

    async def drain(self, nodes: Collection[str], on: bool) -> None:
        """Let the workers of these nodes finish and give them nothing new, or take that back."""
        await self._pool.drain(nodes, (), on)

    async def close(self) -> None:
        """Refuse requests."""
        await self._pool.close()

    def snapshot(self) -> PrefilterStats:
        """The workers and the counts at this moment."""
        once = self._gpu_seconds / self._timed if self._timed else 0.0
        return PrefilterStats(
            judges=self._pool.snapshot().judges, passed=self._passed, refused=self._refused,
            undecided=self._undecided, gpu_seconds_saved=self._refused * once,
        )  # fmt: skip
