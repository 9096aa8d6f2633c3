# SPDX-License-Identifier: Apache-2.0
"""Verdicts the gym would return for generated candidates, without running them.

They only feed the warm start's feedback messages; no reward is ever computed from them.
"""

from __future__ import annotations

from random import Random

from verl_kernel.data.tasks import OPS, Program
from verl_kernel.data.variants import Kind, Variant
from verl_kernel.env.result import EvalError, EvalResult, EvalStatus, Trials

_ERRORS = {
    "undefined_name": (EvalStatus.COMPILE_ERROR, "NameError", "name 'mask' is not defined"),
    "missing_function": (EvalStatus.COMPILE_ERROR, "AttributeError", "module 'triton.language' has no attribute '{}'"),
    "syntax": (EvalStatus.REJECTED_STATIC, "SyntaxError", "expected ':'"),
    "missing_import": (EvalStatus.LOAD_ERROR, "NameError", "name 'tl' is not defined"),
    "missing_argument": (EvalStatus.COMPILE_ERROR, "TypeError", "missing a required argument: 'BLOCK'"),
}


def expected_verdict(program: Program, variant: Variant, rng: Random) -> EvalResult:
    """Return a plausible verdict on a candidate of known kind."""
    if variant.kind is Kind.BROKEN:
        return _broken(program, variant)
    if variant.kind is Kind.WRONG:
        trials = Trials(passed=0, total=5, max_abs=round(rng.uniform(0.1, 4), 3))
        return EvalResult(task_id=program.task_id, status=EvalStatus.INCORRECT, correctness=False, trials=trials)
    if variant.kind is Kind.DECOY:
        return EvalResult(task_id=program.task_id, status=EvalStatus.DECOY, decoy_kernel=True)
    return _correct(program, variant)


def _broken(program: Program, variant: Variant) -> EvalResult:
    status, kind, message = _ERRORS[variant.flaw]
    calls = [step.missing("x").split("(")[0].removeprefix("tl.") for step in program.steps]
    name = next((call for call in calls if f"tl.{call}(" in variant.source), "")
    error = EvalError(stage="run", type=kind, message=message.format(name))
    return EvalResult(task_id=program.task_id, status=status, error=error)


def _correct(program: Program, variant: Variant) -> EvalResult:
    total = sum(OPS[step.name].aten for step in program.steps)
    outside = variant.torch_ops
    return EvalResult(
        task_id=program.task_id,
        status=EvalStatus.OK,
        correctness=True,
        speedup=total / (outside + 1),
        time_coverage=1 / (outside + 1),
        top_kernels=((f"{program.family}_kernel", 0.0021),),
    )
