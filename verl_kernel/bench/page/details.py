# SPDX-License-Identifier: Apache-2.0
"""The details of a task on the page: every sample's turns, as JSON that a script turns into text.

The page remarks on the lines of a kernel that a verdict mentions. The gym names lines as numbers in memory findings, as
`line 7, in kernel f: ...` at the start of a message, and as `line 7, in f: text` for each frame of a traceback. Python
writes `(kernel.py, line 7)` after a syntax error, and Triton's compiler writes `at 3:8:` before its errors, counted
from the kernel's `def`. The candidate itself may have raised the message, so a remark is an unverified claim and is
shown as plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Literal

from verl_kernel.bench.page.task_rows import TaskRow
from verl_kernel.bench.page.texts import VERDICTS, cut_middle, factor, finite, milliseconds, percent
from verl_kernel.bench.records import BenchTurn
from verl_kernel.bench.scores import attempt
from verl_kernel.env import EvalError, EvalResult, Timing
from verl_kernel.reporting.compiled import resources

_MOST = 6
"""Number of launches, kernels and ops that are named."""
Fact = tuple[str, str]
Kind = Literal["memory", "error", "caller", "note"]
_PLACE = re.compile(r"line (\d{1,7})(?:, in (?:kernel )?([^:\n]{1,300}))?: ")
_FRAME = re.compile(r"^line (\d{1,7}), in [^:\n]{1,300}: ", re.M)
_IN_KERNEL = re.compile(r"at (\d{1,7}):\d{1,7}:")
_DEFINED = re.compile(r"^def (\w{1,200})\(", re.M)
_SYNTAX = re.compile(r" \(kernel\.py, line (\d{1,7})\)$")
_CARET = re.compile(r"\n[ \t]{0,300}\^\n")
_TRUE_SIZE = re.compile(r"line (\d{1,7}) ")
_NEWLINE = re.compile(r"\r\n|\r|\n")
CODE_LIMIT = 40_000
"""Largest number of characters of a source on the page."""
COMPLETION_LIMIT = 16_000
"""Largest number of characters of an answer's text, in a run with few answers."""
COMPLETIONS_LIMIT = 32_000_000
"""Characters of all answers' texts together."""
MESSAGE_LIMIT = 4_000
"""Largest number of characters of the reason for a verdict."""
_PROFILE = 8
"""Number of kernels and ops of a profile that the page names."""
_FAILURES = {
    "no_code": "the answer holds no program",
    "too_long": "the answer was cut at the limit of tokens",
    "context_overflow": "the conversation left no room for an answer",
    "malformed": "the endpoint sent no text",
}


def turn_facts(turn: BenchTurn) -> list[Fact]:
    """Return name and text of each fact, in the order of display."""
    return [("reward", f"{turn.reward:.3g}"), *_verdict(turn.result), *_work(turn.result), *_cost(turn)]


def _verdict(result: EvalResult) -> Iterator[Fact]:
    trials = result.trials
    if trials is not None:
        worst = "" if trials.max_abs is None else f", largest difference {trials.max_abs:.3g}"
        where = "" if trials.first_bad_index is None else f", first at {_index(trials.first_bad_index)}"
        yield "trials", f"{trials.passed} of {trials.total} agree{worst}{where}"
    if result.rewarded and result.speedup is not None:
        low = result.sure_speedup
        measured = low is not None and not result.is_simulated
        yield "speedup", factor(result.speedup) + (f", surely {factor(low)}" if measured else "")
    for protocol, measurement in result.times.items():
        yield f"speedup, {protocol}", f"{factor(measurement.speedup)} ({milliseconds(measurement.kernel_ms.median)})"
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
        yield "launches", _names([f"{launch.name} {_index(launch.grid)} x{launch.count}" for launch in result.launches])
    if result.fallback_ops:
        yield "torch ops", _names([f"{name} x{count}" for name, count in result.fallback_ops.items()])
    for kernel in (result.compiled_kernels or ())[:_MOST]:
        yield f"compiled for {kernel.target or result.compiled_for}", f"{kernel.name}: {resources(kernel)}"


def _cost(turn: BenchTurn) -> Iterator[Fact]:
    if turn.shown:
        yield "prompt shows", ("turn " if len(turn.shown) == 1 else "turns ") + ", ".join(map(str, turn.shown))
    tokens = [(turn.prompt_tokens, "in"), (turn.completion_tokens, "out")]
    if counts := [f"{count:,} {side}" for count, side in tokens if count is not None]:
        yield "tokens", ", ".join(counts)
    yield "seconds", f"{turn.generate_s:.1f} to generate, {turn.judge_s:.1f} to judge"
    if turn.result.attempts > 1:
        yield "judged", f"{turn.result.attempts} times, until a judge served"


def _index(numbers: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, numbers))})"


def _names(names: tuple[str, ...] | list[str]) -> str:
    more = len(names) - _MOST
    return ", ".join(name[:120] for name in names[:_MOST]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True)
class Remark:
    """A verdict's remark on a line."""

    line: int
    """Line number in the candidate's file, from 1."""
    kind: Kind
    """`memory`: a finding of the memory checks; `error`: the failing line; `caller`: a line that led to it; `note`."""
    text: str


def source_lines(code: str) -> list[str]:
    """Return the lines of a source as Python counts them, without empty lines at its end."""
    return _NEWLINE.split(code.rstrip("\r\n"))


def remarks(result: EvalResult, code: str) -> list[Remark]:
    """Return a verdict's remarks on lines of the source, sorted and without repetition; never beyond the last line."""
    mentions = [*_memory(result), *_error(result.error, code), *_true_size(result)]
    last, end = len(source_lines(code)), len(_NEWLINE.split(code)) + 1
    placed = [
        Remark(min(mention.line, last), mention.kind, mention.text) for mention in mentions if 1 <= mention.line <= end
    ]
    # Reversed, so that the first of equal remarks stays.
    unique = {(remark.line, remark.text): remark for remark in reversed(placed)}
    return sorted(reversed(unique.values()), key=lambda remark: remark.line)


def _memory(result: EvalResult) -> Iterator[Remark]:
    for finding in result.memory_findings or ():
        if finding.line is not None:
            yield Remark(finding.line, "memory", f"{finding.kind}: {finding.message}")


def _error(error: EvalError | None, code: str) -> Iterator[Remark]:
    if error is None:
        return
    frames = [int(match[1]) for match in _FRAME.finditer(error.traceback_tail or "")]
    line, text = _named_line(error.message, code)
    if line is None and frames:
        line = frames.pop()
    if line is not None:
        yield Remark(line, "error", f"{error.type}: {text}")
    yield from (Remark(frame, "caller", "on the way to the error") for frame in frames if frame != line)


def _named_line(message: str, code: str) -> tuple[int | None, str]:
    """Return the line that a message names, and the rest of the message."""
    if match := _PLACE.match(message):
        return int(match[1]), message[match.end() :]
    if match := _SYNTAX.search(message):
        return int(match[1]), message[: match.start()]
    if match := _IN_KERNEL.match(message):
        return _in_kernel(int(match[1]), message, code), _CARET.split(message)[-1]
    return None, message


def _in_kernel(offset: int, message: str, code: str) -> int | None:
    """Convert a line within a kernel to a line of the file; None if two kernels have its name."""
    quoted = _DEFINED.search(message)
    if quoted is None:
        return None
    starts = [number for number, line in enumerate(source_lines(code), 1) if line.startswith(quoted[0])]
    return starts[0] + offset - 1 if len(starts) == 1 else None


def _true_size(result: EvalResult) -> Iterator[Remark]:
    unknown = result.true_size.unknown if result.true_size is not None else None
    if unknown and (match := _TRUE_SIZE.match(unknown)):
        yield Remark(int(match[1]), "note", f"no time: {unknown}")


def completion_limit(answers: int) -> int:
    """Return how many characters of each text a page may hold if it shows this many answers."""
    return max(1_000, min(COMPLETION_LIMIT, COMPLETIONS_LIMIT // max(1, answers)))


def task_details(row: TaskRow, limit: int, reference: str | None = None) -> dict[str, Any]:
    """Return a task's samples, each with its turns in order.

    Args:
        row: the task.
        limit: largest length of a completion, in characters.
        reference: text of the task's reference program, if it is known.
    """
    samples = groupby(row.answers, key=lambda answer: answer.sample)
    return {
        "task": row.task,
        "level": row.level,
        "family": row.family,
        "chosen": row.chosen,
        "best": row.chosen if row.right else None,
        "reference": None if reference is None else source_lines(reference[:CODE_LIMIT]),
        "reference_cut": max(0, len(reference or "") - CODE_LIMIT),
        "samples": [{"sample": number, "turns": [_turn(turn, limit) for turn in turns]} for number, turns in samples],
    }


def _turn(turn: BenchTurn, limit: int) -> dict[str, Any]:
    result, status = turn.result, attempt(turn).status
    group, meaning = VERDICTS.get(status, ("lost", status))
    return {
        "turn": turn.turn,
        "status": status,
        "group": group,
        "meaning": meaning,
        "speedup": factor(result.speedup) if result.rewarded else "",
        "reason": reason(turn),
        "facts": turn_facts(turn),
        "times": _times(result),
        "profile": _profile(result),
        **_source(turn),
        **_completion(turn, limit),
    }


def reason(turn: BenchTurn) -> str:
    """Return why the answer has its verdict, where more is known than the verdict."""
    parts = [_FAILURES[turn.failure]] if turn.failure else []
    error = turn.result.error
    if error is not None and turn.failure != "no_code":
        parts.append(f"{error.type}: {error.message.strip()}")
    if turn.result.hack_flags:
        parts.append(f"flags: {', '.join(turn.result.hack_flags)}")
    return cut_middle("; ".join(parts), MESSAGE_LIMIT)[0]


def _source(turn: BenchTurn) -> dict[str, Any]:
    if turn.code is None:
        return {"code": None, "code_cut": 0, "remarks": []}
    lines = source_lines(turn.code[:CODE_LIMIT])
    placed = [asdict(remark) for remark in remarks(turn.result, turn.code) if remark.line <= len(lines)]
    return {"code": lines, "code_cut": max(0, len(turn.code) - CODE_LIMIT), "remarks": placed}


def _completion(turn: BenchTurn, limit: int) -> dict[str, Any]:
    if turn.completion is None:
        return {"completion": None}
    text, left_out = cut_middle(turn.completion, limit)
    return {"completion": text, "completion_cut": left_out}


def _times(result: EvalResult) -> list[dict[str, Any]]:
    """Return median and spread of both sides, in milliseconds and as text; only of what was timed."""
    reference = "compiled reference" if result.reference_mode == "compile" else "reference"
    sides = ((reference, result.reference_ms), ("kernel", result.kernel_ms))
    simulated = result.is_simulated
    return [_timing_row(name, timing, simulated) for name, timing in sides if timing is not None and _is_finite(timing)]


def _is_finite(timing: Timing) -> bool:
    return None not in map(finite, (timing.p20, timing.median, timing.p80))


def _timing_row(name: str, timing: Timing, simulated: bool) -> dict[str, Any]:
    ends = f"{milliseconds(timing.p20)} to {milliseconds(timing.p80)}, {timing.n} calls"
    return {
        "name": name,
        "p20": timing.p20,
        "median": timing.median,
        "p80": timing.p80,
        "text": milliseconds(timing.median),
        "range": "simulated, no spread" if simulated and timing.p20 == timing.p80 else ends,
    }


def _profile(result: EvalResult) -> list[dict[str, Any]]:
    """Return the longest kernels and ops and the sum of the rest; the candidate's own kernels are marked."""
    durations = [(name, ms) for name, ms in result.top_kernels or () if finite(ms) is not None and ms > 0]
    launched = {launch.name for launch in result.launches or ()}
    rows = [(name[:200], ms, name in launched) for name, ms in durations[:_PROFILE]]
    if remaining_ms := sum(ms for _, ms in durations[_PROFILE:]):
        rows.append((f"{len(durations) - _PROFILE} others", remaining_ms, False))
    total = sum(ms for _, ms, _ in rows)
    return [{"name": name, "share": ms / total, "text": milliseconds(ms), "own": mine} for name, ms, mine in rows]
