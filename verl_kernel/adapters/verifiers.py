# SPDX-License-Identifier: Apache-2.0
"""verifiers: a suite as a taskset with the reward of a training; `examples/verifiers` is its package for the hub."""

from __future__ import annotations

import verifiers.v1 as vf

from verl_kernel.adapters.judges import answered, figures_of, gym_of
from verl_kernel.bench.suites import load_suite
from verl_kernel.env import Task
from verl_kernel.reward.judging import Judged, judge_answer


class KernelData(vf.TaskData):  # type: ignore[misc]
    """A task of a suite."""

    reference: str
    entry_point: str


class KernelConfig(vf.TaskConfig):  # type: ignore[misc]
    """Where answers are judged."""

    device: str = "auto"
    """Where kernels run, for judges on this machine."""
    address: str | None = None
    """Service whose judges judge (`verl-kernel serve`)."""


class KernelTask(vf.Task[KernelData, vf.State, KernelConfig]):  # type: ignore[misc]
    """Write a Triton program that replaces a PyTorch program."""

    @vf.reward(weight=1.0)  # type: ignore[untyped-decorator]
    async def kernelgym(self, trace: vf.Trace) -> float:
        """Return the profiling-based reward (PR) of the last answer.

        Raises:
            InfraError: the gym could not judge it, so it has no reward.
        """
        return (await self._judged(trace)).reward

    @vf.metric  # type: ignore[untyped-decorator]
    async def correct(self, trace: vf.Trace) -> float:
        """Return 1 if the last answer is correct."""
        return figures_of(await self._judged(trace))["correct"]

    @vf.metric  # type: ignore[untyped-decorator]
    async def speedup(self, trace: vf.Trace) -> float:
        """Return the speedup of the last answer, 0 if it has none."""
        return figures_of(await self._judged(trace))["speedup"]

    async def _judged(self, trace: vf.Trace) -> Judged:
        gym = gym_of(self.config.device, self.config.address)
        task = Task(self.data.reference, self.data.name or "", self.data.entry_point)
        return answered(await judge_answer(task, trace.last_reply, gym.evaluate))  # the gym remembers equal answers


class KernelTasksetConfig(vf.TasksetConfig):  # type: ignore[misc]
    """Which tasks there are."""

    suite: str = "cpu"
    """As `--suite` of `verl-kernel bench`."""
    task: KernelConfig = KernelConfig()


class KernelTaskset(vf.Taskset[KernelTask, KernelTasksetConfig]):  # type: ignore[misc]
    """The tasks of a suite."""

    def load(self) -> list[KernelTask]:
        """Return all tasks, with the suite's own prompts."""
        return [
            KernelTask(
                KernelData(
                    name=item.task.task_id,
                    prompt="\n\n".join(message["content"] for message in item.messages),
                    reference=item.task.reference,
                    entry_point=item.task.entry_point,
                ),
                self.config.task,
            )
            for item in load_suite(self.config.suite).tasks
        ]
