# SPDX-License-Identifier: Apache-2.0
"""Which tasks a judge judges at reduced sizes, and at which sizes; drawn once per task, from the judge's secret."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager

from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.lru import LRUCache
from verl_kernel.env.options import GymOptions
from verl_kernel.env.task import Task
from verl_kernel.env.true_size.bounds import ALLOWED, POSSIBLE, WHOLE, keeps_to
from verl_kernel.env.true_size.dry_pass import dry_forward
from verl_kernel.env.true_size.shrinking import Shrunk, shrink
from verl_kernel.errors import TaskError

_TASKS = 1024
"""Most tasks whose sizes are remembered; sizes are drawn once, so that all candidates of a task see the same."""


class SizeChoice:
    """The sizes of tasks.

    Args:
        options: `kernelgym.true_size`.
        device: where tasks run; a device that measures runs every task at its own size.
        seed: of the judge; without it every judge draws other sizes.
        guard: is entered around every call of a reference.
        on_large: is called for each task that is too large, before its forward runs without data.
    """

    def __init__(
        self,
        options: GymOptions,
        device: DeviceBackend,
        seed: int | None,
        guard: Callable[[], AbstractContextManager[object]],
        on_large: Callable[[], None],
    ) -> None:
        self._is_on = options.true_size == "auto" and device.is_counted
        self._device, self._guard, self._on_large = device, guard, on_large
        self._secret = os.urandom(32) if seed is None else hashlib.sha256(f"sizes\0{seed}".encode()).digest()
        self._decisions: LRUCache[tuple[Shrunk | TaskError | None]] = LRUCache(_TASKS)

    def of(self, task: Task) -> Shrunk | None:
        """Return the reduced copies that a task is judged by; None for a task that is judged at its own size.

        Raises:
            TaskError: the task is too large and has no reduced copies.
        """
        if not self._is_on:
            return None
        decision = self._decisions.get(task.cache_key) or self._decisions.put(task.cache_key, (self._decide(task),))
        if isinstance(decision[0], TaskError):
            raise decision[0]
        return decision[0]

    def _decide(self, task: Task) -> Shrunk | TaskError | None:
        with self._guard():
            if self._is_run_whole(task):
                return None
            self._on_large()  # the zygote loads what forwards without data need, while sizes are searched
            try:
                return shrink(task, self._device, self._secret)
            except TaskError as exc:
                # Without a copy, a task that takes torch about a second is judged as it is.
                return None if keeps_to(task, self._device, POSSIBLE) else exc

    def _is_run_whole(self, task: Task) -> bool:
        """Whether a task runs at its own size; a large one first runs without data, as it could take hours."""
        if keeps_to(task, self._device, ALLOWED):
            return True
        try:
            dry = dry_forward(task, self._device)
        except TaskError:
            return keeps_to(task, self._device, WHOLE)
        return WHOLE.hold(dry.traffic, dry.work, dry.tensor_bytes)
