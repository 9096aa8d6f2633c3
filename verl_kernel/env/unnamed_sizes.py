# SPDX-License-Identifier: Apache-2.0
"""Sizes that a task does not name, at which a kernel that promises any size should work too.

A kernel may be right at its task's sizes by luck: without a mask where tiles fit, or with padding that a power of two
never needs. That is no error of the verdict, which is about the task; it is worth knowing before the kernel is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import isqrt

from verl_kernel.env.result import ONLY_THIS_SIZE, EvalResult, EvalStatus
from verl_kernel.env.size_verdicts import size_verdict
from verl_kernel.env.task import Task
from verl_kernel.env.true_size.shrinking import UNCHANGED, resized, sizes_of

MOST_NUMBERS = 4
"""Numbers of a task that are changed, the largest: smaller ones are more often channels or widths that have to fit."""


def one_above(number: int) -> int:
    """Return the number after this one: odd where it was even, so that no tile fits."""
    return number + 1


def next_prime(number: int) -> int:
    """Return the least prime above a number."""
    number += 1
    while any(number % divisor == 0 for divisor in range(2, isqrt(number) + 1)):
        number += 1
    return number


def next_power_of_two(number: int) -> int:
    """Return the least power of two above a number."""
    return 1 << number.bit_length()


_RULES: tuple[Callable[[int], int], ...] = (one_above, next_prime, next_power_of_two)


def other_sizes(task: Task) -> dict[str, Task]:
    """Return the task with one of its numbers changed, by a name such as `257 for 256`.

    The reference need not take each of them: a judge says so (`TaskError`).
    """
    numbers = [number for number in sizes_of(task.reference) if number > UNCHANGED][-MOST_NUMBERS:]
    changes = {f"{rule(number)} for {number}": {number: rule(number)} for number in numbers for rule in _RULES}
    return {
        name: replace(task, reference=resized(task.reference, change), task_id=f"{task.task_id}[{name}]")
        for name, change in changes.items()
    }


def with_other_sizes(result: EvalResult, others: dict[str, EvalResult]) -> EvalResult:
    """Return a result with its verdicts at other sizes; `only_this_size` among its flags if it is wrong at one."""
    verdicts = tuple(size_verdict(name, other) for name, other in others.items())
    is_wrong = any(other.status not in (EvalStatus.OK, EvalStatus.INFRA_ERROR) for other in others.values())
    flags = (*result.hack_flags, *[ONLY_THIS_SIZE] * is_wrong)
    return result.model_copy(update={"other_sizes": verdicts, "hack_flags": flags})
