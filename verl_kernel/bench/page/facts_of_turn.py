# SPDX-License-Identifier: Apache-2.0
"""Facts of one judged answer in addition to its verdict, by name; unknown facts are left out."""

from __future__ import annotations

from collections.abc import Iterator

from verl_kernel.bench.page.texts import factor, milliseconds, percent
from verl_kernel.bench.records import BenchTurn
from verl_kernel.env import EvalResult

_MOST = 6
"""Number of launches, kernels and ops that are named."""
Fact = tuple[str, str]


def turn_facts(one: BenchTurn) -> list[Fact]:
    """Return name and text of each fact, in the order of display."""
    return [("reward", f"{one.reward:.3g}"), *_verdict(one.result), *_work(one.result), *_cost(one)]


def _verdict(result: EvalResult) -> Iterator[Fact]:
    trials = result.trials
    if trials is not None:
        worst = "" if trials.max_abs is None else f", largest difference {trials.max_abs:.3g}"
        where = "" if trials.first_bad_index is None else f", first at {_index(trials.first_bad_index)}"
        yield "trials", f"{trials.passed} of {trials.total} agree{worst}{where}"
    if result.rewarded and result.speedup is not None:
        low = result.sure_speedup
        measured = low is not None and result.timing_source != "simulated"
        yield "speedup", factor(result.speedup) + (f", surely {factor(low)}" if measured else "")
    for protocol, found in result.times.items():
        yield f"speedup, {protocol}", f"{factor(found.speedup)} ({milliseconds(found.kernel_ms.median)})"
    if result.true_size is not None:
        yield "sizes", result.true_size.unknown or "judged at reduced sizes, timed at the task's own"
    if result.unpriced_ops:
        yield "no price for", _names(result.unpriced_ops)
    if result.task_flags:
        yield "task", _names(result.task_flags)


def _work(result: EvalResult) -> Iterator[Fact]:
    if result.time_coverage is not None:
        yield "coverage", f"{percent(result.time_coverage)} of device time in its own kernels"
    if result.num_total_kernels is not None:
        yield "own kernels", f"{result.num_custom_kernels or 0} of {result.num_total_kernels}"
    if result.launches:
        yield "launches", _names([f"{one.name} {_index(one.grid)} x{one.count}" for one in result.launches])
    if result.fallback_ops:
        yield "torch ops", _names([f"{name} x{count}" for name, count in result.fallback_ops.items()])
    for kernel in (result.compiled_kernels or ())[:_MOST]:
        parts = (("registers", kernel.registers), ("bytes spilled", kernel.spills), ("bytes shared", kernel.shared),
                 ("warps", kernel.warps), ("blocks an SM", kernel.blocks_per_sm))  # fmt: skip
        known = ", ".join(f"{count} {what}" for what, count in parts if count is not None)
        yield f"compiled for {result.compiled_for}", f"{kernel.name}: {known}"


def _cost(one: BenchTurn) -> Iterator[Fact]:
    if one.shown:
        yield "prompt shows", ("turn " if len(one.shown) == 1 else "turns ") + ", ".join(map(str, one.shown))
    tokens = [(one.prompt_tokens, "in"), (one.completion_tokens, "out")]
    if known := [f"{count:,} {side}" for count, side in tokens if count is not None]:
        yield "tokens", ", ".join(known)
    yield "seconds", f"{one.generate_s:.1f} to generate, {one.judge_s:.1f} to judge"
    if one.result.attempts > 1:
        yield "judged", f"{one.result.attempts} times, until a judge served"


def _index(numbers: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, numbers))})"


def _names(names: tuple[str, ...] | list[str]) -> str:
    more = len(names) - _MOST
    return ", ".join(name[:120] for name in names[:_MOST]) + (f" and {more} more" if more > 0 else "")
