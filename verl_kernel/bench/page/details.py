# SPDX-License-Identifier: Apache-2.0
"""The details of a task on the page: every sample's turns, as JSON that a script turns into text."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from typing import Any

from verl_kernel.bench.page.facts_of_turn import turn_facts
from verl_kernel.bench.page.packing import cut_middle
from verl_kernel.bench.page.remarks import remarks, source_lines
from verl_kernel.bench.page.task_rows import TaskRow
from verl_kernel.bench.page.texts import VERDICTS, factor, known, milliseconds
from verl_kernel.bench.records import BenchTurn
from verl_kernel.bench.scores import attempt
from verl_kernel.env import EvalResult, Timing

CODE_LIMIT = 40_000
"""Largest number of characters of a source on the page."""
COMPLETION_LIMIT = 16_000
"""Largest number of characters of an answer's text, in a run with few answers."""
COMPLETIONS_LIMIT = 32_000_000
"""Characters of all answers' texts together."""
MESSAGE_LIMIT = 4_000
_PROFILE = 8
"""Number of kernels and ops of a profile that the page names."""
_FAILURES = {
    "no_code": "the answer holds no program",
    "too_long": "the answer was cut at the limit of tokens",
    "context_overflow": "the conversation left no room for an answer",
    "malformed": "the endpoint sent no text",
}


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
    samples = groupby(row.answers, key=lambda one: one.sample)
    return {
        "task": row.task,
        "level": row.level,
        "family": row.family,
        "chosen": row.chosen,
        "best": row.chosen if row.right else None,
        "reference": None if reference is None else source_lines(reference[:CODE_LIMIT]),
        "reference_cut": max(0, len(reference or "") - CODE_LIMIT),
        "samples": [{"sample": number, "turns": [_turn(one, limit) for one in turns]} for number, turns in samples],
    }


def _turn(one: BenchTurn, limit: int) -> dict[str, Any]:
    result, status = one.result, attempt(one).status
    group, meaning = VERDICTS.get(status, ("lost", status))
    return {
        "turn": one.turn,
        "status": status,
        "group": group,
        "meaning": meaning,
        "speedup": factor(result.speedup) if result.rewarded else "",
        "reason": reason(one),
        "facts": turn_facts(one),
        "times": _times(result),
        "profile": _profile(result),
        **_source(one),
        **_completion(one, limit),
    }


def reason(one: BenchTurn) -> str:
    """Return why the answer has its verdict, where more is known than the verdict."""
    parts = [_FAILURES[one.failure]] if one.failure else []
    error = one.result.error
    if error is not None and one.failure != "no_code":
        parts.append(f"{error.type}: {error.message.strip()}")
    if one.result.hack_flags:
        parts.append(f"flags: {', '.join(one.result.hack_flags)}")
    return cut_middle("; ".join(parts), MESSAGE_LIMIT)[0]


def _source(one: BenchTurn) -> dict[str, Any]:
    if one.code is None:
        return {"code": None, "code_cut": 0, "remarks": []}
    lines = source_lines(one.code[:CODE_LIMIT])
    placed = [asdict(found) for found in remarks(one.result, one.code) if found.line <= len(lines)]
    return {"code": lines, "code_cut": max(0, len(one.code) - CODE_LIMIT), "remarks": placed}


def _completion(one: BenchTurn, limit: int) -> dict[str, Any]:
    if one.completion is None:
        return {"completion": None}
    text, left_out = cut_middle(one.completion, limit)
    return {"completion": text, "completion_cut": left_out}


def _times(result: EvalResult) -> list[dict[str, Any]]:
    """Return median and spread of both sides, in milliseconds and as text; only of what was timed."""
    sides = (("reference", result.reference_ms), ("kernel", result.kernel_ms))
    simulated = result.timing_source == "simulated"
    return [_spread(name, timing, simulated) for name, timing in sides if timing is not None and _is_finite(timing)]


def _is_finite(timing: Timing) -> bool:
    return None not in map(known, (timing.p20, timing.median, timing.p80))


def _spread(name: str, timing: Timing, simulated: bool) -> dict[str, Any]:
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
    spent = [(name, ms) for name, ms in result.top_kernels or () if known(ms) is not None and ms > 0]
    own = {launch.name for launch in result.launches or ()}
    shown = [(name[:200], ms, name in own) for name, ms in spent[:_PROFILE]]
    if rest := sum(ms for _, ms in spent[_PROFILE:]):
        shown.append((f"{len(spent) - _PROFILE} others", rest, False))
    total = sum(ms for _, ms, _ in shown)
    return [{"name": name, "share": ms / total, "text": milliseconds(ms), "own": mine} for name, ms, mine in shown]
