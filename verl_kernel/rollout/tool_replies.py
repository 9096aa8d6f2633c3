# SPDX-License-Identifier: Apache-2.0
"""What tools say of a program that was tried on public inputs: nothing of secret inputs or their outputs."""

from __future__ import annotations

from dataclasses import replace

from verl_kernel.env import EvalResult, EvalStatus, GymOptions
from verl_kernel.figures.profile_lines import missing_profile, result_lines
from verl_kernel.rollout.feedback import format_feedback

TRIALS = ("check", "run", "profile")
"""Names of the tools."""
ACCEPTED = "It is accepted, compiles and runs."
"""What `check` says of a program that nothing stops."""
PUBLIC_SEED = 0
"""Seed of the inputs on which programs are tried."""
_STOPPED = (
    *(EvalStatus.REJECTED_STATIC, EvalStatus.LOAD_ERROR, EvalStatus.COMPILE_ERROR, EvalStatus.RUNTIME_ERROR),
    *(EvalStatus.CRASH, EvalStatus.TIMEOUT, EvalStatus.OOM),
)
"""Verdicts that say nothing of values."""


def public_options(options: GymOptions) -> GymOptions:
    """Return the options of the judges that try a program on public inputs: one trial, on this machine."""
    return replace(options, correctness_trials=1, trial_choice=None, num_judges=1, address=None, address_key=None)


def tried_text(tool: str, result: EvalResult, limit: int, candidate_class: str, instruction: str | None = None) -> str:
    """Return a tool's answer.

    Args:
        tool: `check` (whether the program is accepted, compiles and runs, and its resources), `run` (the verdict) or
            `profile` (what bounds each kernel).
        result: verdict on public inputs.
        limit: characters of a verdict.
        candidate_class: name of the class that the program defines.
        instruction: the last line of a verdict, as in `format_feedback`.
    """
    verdict_text = format_feedback(result, limit, candidate_class=candidate_class, instruction=instruction)
    if result.status is EvalStatus.INFRA_ERROR:
        return "The judge failed, which says nothing of the program: try again."
    if tool == "run":
        return f"On public inputs, which are not those of a submission:\n{verdict_text}"
    if tool == "profile":
        has_profile = result.profile is not None
        return (
            "\n".join(result_lines(result))
            if has_profile
            else f"There is no profile, {missing_profile(result)}.\n{verdict_text}"
        )
    if result.status in _STOPPED:
        return verdict_text
    lines = [f"{kernel.name}: {_resources(kernel)}" for kernel in result.compiled_kernels or ()]
    return "\n".join([ACCEPTED, *lines])


def _resources(kernel: object) -> str:
    named = (("registers", "registers"), ("spills", "bytes spilled"), ("shared", "bytes of shared memory"))
    counts = [(getattr(kernel, field), words) for field, words in named]
    return ", ".join(f"{count} {words}" for count, words in counts if count is not None)
