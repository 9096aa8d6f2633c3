# SPDX-License-Identifier: Apache-2.0
"""Answers in KernelBench's layout, `level_<L>_problem_<P>_sample_<S>_kernel.py`, with what their first lines expect.

# expected: ok                status of the verdict; `incorrect or unsafe` where a secret decides which comes first
# speedup: 0.9 to 1.1         of an answer that is ok; `none` where it may not get one
# rewarded: no                of an answer that is ok to a task that rewards nobody
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from verl_kernel.env import EvalResult, EvalStatus
from verl_kernel.errors import DataError

FILE_NAME = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
_LINE = re.compile(r"^# (expected|speedup|rewarded): (.+)$", re.M)
_RANGE = re.compile(r"([\d.]+) to ([\d.]+)")


@dataclass(frozen=True)
class Program:
    """An answer to a task."""

    path: Path
    level: int
    problem: int
    sample: int
    source: str
    expected: tuple[EvalStatus, ...]
    """One of them."""
    speedups: tuple[float, float] | None = None
    """Lowest and highest that is plausible; null: none may be charged."""
    rewarded: bool = False

    @property
    def named(self) -> str:
        """What is expected, in words."""
        return " or ".join(status.value for status in self.expected)

    def deviation(self, result: EvalResult) -> str:
        """In what the verdict differs from what is expected; empty if in nothing."""
        if result.status not in self.expected:
            return f"{self.named} was expected"
        if result.rewarded is not self.rewarded:
            return f"a reward was {'expected' if self.rewarded else 'not expected'}"
        if not self.rewarded:
            return ""
        if self.speedups is None:
            return "" if result.speedup is None else "no speedup was expected"
        low, high = self.speedups
        if result.speedup is None or not low <= result.speedup <= high:
            return f"{low:g} to {high:g} was expected"
        return ""


def read_programs(folder: Path, chosen: set[tuple[int, int]] | None = None) -> list[Program]:
    """All answers of a folder, or those to the tasks `chosen` by level and problem, in order.

    Raises:
        DataError: there are none, or a file does not say what it expects.
    """
    found = [_program(path, match) for path in folder.glob("*.py") if (match := FILE_NAME.fullmatch(path.name))]
    kept = [one for one in found if chosen is None or (one.level, one.problem) in chosen]
    if not kept:
        raise DataError(f"{folder} holds no answers to these tasks: name them as KernelBench does, {FILE_NAME.pattern}")
    return sorted(kept, key=lambda one: (one.level, one.problem, one.sample))


def _program(path: Path, match: re.Match[str]) -> Program:
    source = path.read_text(encoding="utf-8")
    lines = dict(_LINE.findall(source.partition("\n\n")[0]))
    level, problem, sample = (int(number) for number in match.groups())
    expected = _statuses(path, lines)
    rewarded = EvalStatus.OK in expected and lines.get("rewarded") != "no"
    speedups = _speedups(path, lines) if rewarded else None
    return Program(path, level, problem, sample, source, expected, speedups, rewarded)


def _statuses(path: Path, lines: dict[str, str]) -> tuple[EvalStatus, ...]:
    try:
        return tuple(map(EvalStatus, lines["expected"].split(" or ")))
    except (KeyError, ValueError):
        statuses = ", ".join(status.value for status in EvalStatus)
        raise DataError(f"{path} does not say its verdict: begin with `# expected: ` and one of {statuses}") from None


def _speedups(path: Path, lines: dict[str, str]) -> tuple[float, float] | None:
    text = lines.get("speedup", "")
    if text == "none":
        return None
    if (match := _RANGE.fullmatch(text)) is None:
        raise DataError(f"{path} does not say its speedup: begin with `# speedup: 0.9 to 1.1`, or `none`")
    return float(match[1]), float(match[2])


def reference_of(folder: Path, program: Program) -> Path:
    """The task's file in a checkout of KernelBench.

    Raises:
        DataError: it is not there.
    """
    at = f"level{program.level}/{program.problem}_*.py"
    found = [*folder.glob(at), *folder.glob(f"KernelBench/{at}")]
    if len(found) != 1:
        raise DataError(f"{folder} has {len(found)} files {at}: name the folder of KernelBench with level1, level2")
    return found[0]
