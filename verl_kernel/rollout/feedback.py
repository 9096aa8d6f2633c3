# SPDX-License-Identifier: Apache-2.0
"""What the policy is told about its last kernel: verdict, error tail, speedup, coverage and top kernels.

The text holds no reward value (a channel for gaming) and no secret of the judge (seeds, expected
outputs), and it is cut to a fixed number of characters.
"""

from __future__ import annotations

from verl_kernel.env.result import EvalResult, EvalStatus

_ADVICE = {
    EvalStatus.OK: "Make it faster: do more of the work in fewer Triton kernels.",
    EvalStatus.DECOY: "The output does not depend on a Triton kernel: compute it in one.",
    EvalStatus.INCORRECT: "Fix the kernel so that it matches Model.",
}
_REPAIR = "Fix the error."
_CLOSING = "Answer with one ```python block that defines ModelNew."
_NO_CODE = f"Verdict: no_code\nThe answer held no closed ```python block.\n{_CLOSING}"


def no_code_feedback() -> str:
    """Return the message for an answer without a program."""
    return _NO_CODE


def format_feedback(result: EvalResult, limit: int = 800) -> str:
    """Describe a verdict to the policy in at most `limit` characters, closing instruction included."""
    closing = f"{_ADVICE.get(result.status, _REPAIR)}\n{_CLOSING}"
    body = "\n".join(_facts(result))
    room = max(limit - len(closing) - 1, 0)
    if len(body) > room:
        body = body[: max(room - 4, 0)] + " ..."
    return f"{body}\n{closing}"


def _facts(result: EvalResult) -> list[str]:
    lines = [f"Verdict: {result.status.value}"]
    if result.trials is not None and result.status is EvalStatus.INCORRECT:
        lines.append(_mismatch(result))
    if result.error is not None:
        lines.append(f"Error: {_tail(result.error.type, result.error.message, result.error.traceback_tail)}")
    if result.hack_flags:
        lines.append(f"Flags: {', '.join(result.hack_flags)}")
    if result.speedup is not None:
        lines.append(f"Speedup: {result.speedup:.2f}x")
    if result.time_coverage is not None:
        lines.append(f"Coverage: {result.time_coverage:.0%} of device time in Triton kernels")
    if result.top_kernels:
        lines.append("Top: " + ", ".join(f"{name} {1e3 * ms:.1f} us" for name, ms in result.top_kernels[:3]))
    return lines


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
