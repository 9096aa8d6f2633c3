# SPDX-License-Identifier: Apache-2.0
"""Finds smaller copies of a task that run the same ops: what a CPU judges in place of a task that is too large.

A copy has other numbers where the task writes its sizes (`constants`), reduced by one rule (`size_rules`). It is
accepted if its dry pass runs the op list of the true size, its output is not empty and it keeps to the bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from verl_kernel.env.devices.base import DeviceBackend
from verl_kernel.env.seeding import seed_of
from verl_kernel.env.task import Task
from verl_kernel.env.true_size.bounds import ALLOWED, LARGER, WANTED, Bounds
from verl_kernel.env.true_size.constants import resized, sizes_of
from verl_kernel.env.true_size.dry_pass import DryForward, dry_forward
from verl_kernel.env.true_size.size_rules import KEPT, WIDTHS, Sizes, divided, halved, varied
from verl_kernel.errors import TaskError

_MOST_HALVINGS = 24


@dataclass(frozen=True)
class Copy:
    """A task at other sizes."""

    task: Task
    sizes: Sizes
    """The new size for each one of the task's that changes."""
    dry: DryForward

    def keeps_to(self, bounds: Bounds) -> bool:
        """Whether its forward does."""
        return bounds.hold(self.dry.traffic, self.dry.flops, self.dry.tensor_bytes)


@dataclass(frozen=True)
class Shrunk:
    """A task that is judged at reduced sizes."""

    true: DryForward
    copies: tuple[Copy, ...]
    """The first one is for most trials, the second one is larger where there is room."""


def shrink(task: Task, device: DeviceBackend, secret: bytes) -> Shrunk:
    """Two reduced copies of a task, of sizes that depend on a secret; one where no other size works.

    Raises:
        TaskError: its forward cannot be followed without data, or no copy is accepted.
    """
    true = dry_forward(task, device)
    copies = _Copies(task, device, true.ops)
    small, large = copies.base(sizes_of(task.reference))
    if small is None:
        raise TaskError(_unshrinkable(task, true))
    random = Random(seed_of(b"sizes", secret, task.fingerprint.encode()))
    first = copies.varied(small, random, [])
    second = copies.varied(large or small, random, [first.task.reference])
    pair = sorted((first, second), key=lambda copy: (copy.dry.traffic, copy.dry.flops))
    distinct = {copy.task.reference: copy for copy in (*pair, small)}
    return Shrunk(true, tuple(distinct.values())[:2])


class _Copies:
    """Makes copies of one task and accepts some."""

    def __init__(self, task: Task, device: DeviceBackend, ops: tuple[str, ...]) -> None:
        self._task, self._device, self._ops = task, device, ops

    def base(self, sizes: Sequence[int]) -> tuple[Copy | None, Copy | None]:
        """The copy that is wanted, or the smallest there is, and the next larger one, unless it takes too long."""
        found = self._smaller(sizes, WIDTHS)
        if not (found and found[-1].keeps_to(LARGER)):
            found = self._smaller(sizes, KEPT)
        if not found and (halves := halved(sizes, self._fits)) is not None:
            found = [copy for copy in [self.accepted(halves)] if copy is not None]
        larger = [copy for copy in found[:-1] if copy.keeps_to(LARGER)]
        return found[-1] if found else None, larger[-1] if larger else None

    def _smaller(self, sizes: Sequence[int], kept: int) -> list[Copy]:
        """Copies that are allowed, the smallest last, with numbers up to `kept` as they are."""
        found: list[Copy] = []
        most = max(sizes, default=0)
        for factor in range(1, min(_MOST_HALVINGS, most.bit_length()) if most > kept else 0):
            copy = self._divided(sizes, 2**factor, kept)
            if copy is None:
                continue
            if copy.keeps_to(ALLOWED):
                found.append(copy)
            if copy.keeps_to(WANTED):
                break
        return found

    def varied(self, copy: Copy, random: Random, taken: Sequence[str]) -> Copy:
        """A copy of sizes a little larger than those of this one, if any is accepted."""
        for sizes in varied(copy.sizes, random):
            other = self.accepted(sizes)
            if other is not None and other.keeps_to(ALLOWED) and other.task.reference not in taken:
                return other
        return copy

    def accepted(self, sizes: Sizes) -> Copy | None:
        """The copy with these sizes, or None if it is another task or fails."""
        copy = Task(resized(self._task.reference, sizes), self._task.task_id, self._task.entry_point)
        try:
            dry = dry_forward(copy, self._device)
        except TaskError:
            return None
        is_empty = any(tensor.numel() == 0 for tensor in dry.output.tensors)
        return None if is_empty or dry.ops != self._ops else Copy(copy, sizes, dry)

    def _divided(self, sizes: Sequence[int], factor: int, kept: int) -> Copy | None:
        """All sizes over a factor: different ones stay different where the task bears that."""
        tries: list[Callable[[], Sizes]] = [
            lambda: divided(sizes, factor, kept=kept),
            lambda: divided(sizes, factor, distinct=False, kept=kept),
        ]
        return next((copy for make in tries if (copy := self.accepted(make())) is not None), None)

    def _fits(self, sizes: Sizes) -> bool | None:
        copy = self.accepted(sizes)
        return None if copy is None else copy.keeps_to(ALLOWED)


def _unshrinkable(task: Task, true: DryForward) -> str:
    return (
        f"reference {task.task_id} cannot serve as a task: its forward moves {true.traffic / 1e9:.1f} GB and takes "
        f"{true.flops / 1e9:.0f} GFLOP, too much for this machine, and no copy with smaller sizes runs the same ops: "
        "write its sizes as numbers at module level, or make them smaller"
    )
