# SPDX-License-Identifier: Apache-2.0
"""Writes the feedback on the policy's last kernel: a few lines, or the report as JSON.

The text holds no reward value (a channel for gaming) and no secret of the judge (seeds, expected
outputs), and it is never longer than its limit.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from verl_kernel.env import EvalResult, EvalStatus, Task
from verl_kernel.figures.profile_lines import result_lines
from verl_kernel.reward.options import ConversationOptions

_ADVICE = {
    EvalStatus.OK: "Make it faster: do more of the work in fewer Triton kernels.",
    EvalStatus.DECOY: "The output does not depend on a Triton kernel: compute it in one.",
    EvalStatus.UNSAFE: "Make every access stay inside its tensors, read only what was written, and race with no other.",
    EvalStatus.SIZE_DEPENDENT: "Do at every size what you do at small ones: choose settings by arithmetic on sizes.",
    EvalStatus.INCORRECT: "Fix the kernel so that it matches {reference}.",
}
_REPAIR = "Fix the error."
_SHAPES_VARY = "Shapes vary: outputs are compared at reduced sizes, time is that of the sizes in {reference}."
_REPORT = (
    *("compiled", "correctness", "decoy_kernel", "hack_flags", "memory_findings", "speedup", "speedup_low"),
    *("sizes", "kernel_ms", "reference_ms"),
    *("reference_mode", "timing_source", "time_coverage", "number_coverage", "num_custom_kernels", "num_total_kernels"),
    *("top_kernels", "launches", "fallback_ops", "trials", "true_size", "error"),
)
"""Fields of a full report; all other fields of a result stay with the judge."""


def feedback_on(task: Task, result: EvalResult, options: ConversationOptions, clean: Callable[[str], str]) -> str:
    """Describe a verdict in the form that the options of a conversation ask for."""
    return format_feedback(
        result, options.feedback_chars, candidate_class=task.candidate_class, form=options.feedback, clean=clean
    )


def format_feedback(
    result: EvalResult,
    limit: int = 800,
    *,
    candidate_class: str = "ModelNew",
    form: str = "short",
    clean: Callable[[str], str] = str,
    instruction: str | None = None,
) -> str:
    """Describe a verdict to the policy in at most `limit` characters, closing instruction included.

    Args:
        result: the verdict.
        limit: characters; text beyond it is cut from the facts, and the advice is dropped before the verdict.
        candidate_class: name of the class that the next answer has to define.
        form: `short`, `profile` for the profile too, `full` for the report as JSON, cut in its middle because the
            error is at its end, or `none` for nothing but the request to answer again, to measure the value of
            feedback.
        clean: applied to quotations of the candidate (`turn_end.neutraliser`).
        instruction: the last line; None asks for an answer with a program.
    """
    instruction = instruction or f"Answer with one ```python block that defines {candidate_class}."
    if form == "none":
        return f"Try again.\n{instruction}"[:limit]
    advice = _ADVICE.get(result.status, _REPAIR).format(reference=candidate_class.removesuffix("New"))
    verdict, closing = f"Verdict: {result.status.value}", f"{advice}\n{instruction}"
    if len(verdict) + 1 + len(closing) > limit:
        closing = instruction
    room = limit - len(verdict) - len(closing) - 2
    if form == "full":
        facts = _cut_middle(clean(_report(result)), room)
    else:
        lines = _facts(result, candidate_class.removesuffix("New"))
        if form == "profile" and result.status is EvalStatus.OK:
            lines += result_lines(result)
        elif result.top_kernels:
            lines.append("Top: " + ", ".join(f"{name} {1e3 * ms:.1f} us" for name, ms in result.top_kernels[:3]))
        facts = _cut_end(clean("\n".join(lines)), room)
    parts = [verdict, facts, closing] if len(verdict) + 1 + len(closing) <= limit else [closing[:limit]]
    return "\n".join(part for part in parts if part)


def _cut_end(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    return f"{text[: room - 4]} ..." if room >= 4 else ""


def _cut_middle(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    half = (room - 5) // 2
    return f"{text[:half]}\n...\n{text[len(text) - half :]}" if half > 0 else ""


def _report(result: EvalResult) -> str:
    dumped = result.model_dump(mode="json", exclude_none=True)
    if result.is_simulated:  # where it says nothing new
        dumped.pop("speedup_low", None)
    if "true_size" in dumped:  # which sizes were judged is the judge's secret
        dumped["true_size"]["sizes"] = "vary"
    return json.dumps({key: dumped[key] for key in _REPORT if key in dumped}, indent=1, ensure_ascii=False)


def _facts(result: EvalResult, reference: str) -> list[str]:
    lines = [] if result.true_size is None else [_SHAPES_VARY.format(reference=reference)]
    if result.trials is not None and result.status is EvalStatus.INCORRECT:
        lines.append(_mismatch(result))
    if result.error is not None:
        lines.append(f"Error: {_tail(result.error.type, result.error.message, result.error.traceback_tail)}")
    if result.hack_flags:
        lines.append(f"Flags: {', '.join(result.hack_flags)}")
    if result.speedup is not None:
        lines.append(f"Speedup: {result.speedup:.2f}x{_certainty(result)}{_worst_size(result)}")
    if result.true_size is not None and result.true_size.unknown and result.status is EvalStatus.OK:
        lines.append(f"No speedup: {result.true_size.unknown}")
    if result.time_coverage is not None:
        lines.append(f"Coverage: {result.time_coverage:.0%} of device time in Triton kernels")
    return lines


def _certainty(result: EvalResult) -> str:
    """Return what a reader of a speedup must know of its time: that no GPU measured it, or its lower bound."""
    if result.is_simulated:
        return " (simulated)"
    return "" if result.speedup_low is None else f" (at least {result.speedup_low:.2f}x, noise considered)"


def _worst_size(result: EvalResult) -> str:
    """Return the size of a task of several at which the kernel gains least."""
    known = [verdict for verdict in result.sizes or () if verdict.speedup is not None]
    if not known:
        return ""
    worst = min(known, key=lambda verdict: verdict.speedup or 0.0)
    return f", the mean over {len(known)} sizes; the least is {worst.speedup:.2f}x at {worst.name}"


def _mismatch(result: EvalResult) -> str:
    trials = result.trials
    assert trials is not None
    text = f"Matched in {trials.passed} of {trials.total} trials"
    return text if trials.max_abs is None else f"{text}, largest difference {trials.max_abs:.3g}"


def _tail(kind: str, message: str, traceback_tail: str | None) -> str:
    text = f"{kind}: {message.strip()}"
    if traceback_tail and len(text) < 200:
        text += "\n" + "\n".join(traceback_tail.strip().splitlines()[-3:])
    return text[-400:]
