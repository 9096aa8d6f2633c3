# SPDX-License-Identifier: Apache-2.0
"""Verdicts the gym would return for generated candidates, without running them.

They only feed the warm start's feedback messages; no reward is ever computed from them. A test
compares them with the gym's own verdicts.
"""

from __future__ import annotations

import re
from collections import Counter
from random import Random
from typing import Any

from verl_kernel.env import EvalError, EvalResult, EvalStatus, Trials
from verl_kernel.quickstart.tasks import Program
from verl_kernel.quickstart.variants import Kind, Variant

_OP_MS = 0.004
"""Time of one small kernel on the simulated clock: mostly launch overhead."""
_TRIALS = 3


def expected_verdict(program: Program, variant: Variant, rng: Random) -> EvalResult:
    """Return the gym's likely verdict on a candidate of known kind."""
    if variant.kind is Kind.BROKEN:
        return _broken(program, variant)
    if variant.kind is Kind.WRONG:
        return _wrong(program, rng)
    return _decoy(program, variant) if variant.kind is Kind.DECOY else _correct(program, variant)


def _all_ops(program: Program) -> list[str]:
    return [name for step in program.steps for name in step.op.aten]


def _measured(program: Program, ops: list[str], own: list[str]) -> dict[str, Any]:
    times = Counter(f"aten::{op}" for op in ops) + Counter(own)
    longest = sorted(times.items(), key=lambda item: (-item[1], item[0]))
    return {
        "task_id": program.task_id,
        "speedup": len(_all_ops(program)) / times.total(),
        "time_coverage": len(own) / times.total(),
        "top_kernels": tuple((name, count * _OP_MS) for name, count in longest),
    }


def _correct(program: Program, variant: Variant) -> EvalResult:
    facts = _measured(program, list(variant.torch_ops), [_kernel_name(variant)])
    if len(variant.torch_ops) == len(_all_ops(program)):  # torch computes everything, the kernel copies
        facts |= {"time_coverage": 0.0, "hack_flags": ("only_moves",)}
    return EvalResult(status=EvalStatus.OK, correctness=True, **facts)


def _decoy(program: Program, variant: Variant) -> EvalResult:
    launched = variant.flaw == "unused_launch"
    if launched:
        error = _error(
            "LaunchIrrelevant",
            "the output stays right when the kernels are not launched: it does not come from them",
        )
    else:
        error = _error("NoLaunch", "no kernel of the source was launched: the output does not come from Triton")
    facts = _measured(program, _all_ops(program), [_kernel_name(variant)] * launched)
    return EvalResult(status=EvalStatus.DECOY, decoy_kernel=True, error=error, **facts)


def _wrong(program: Program, rng: Random) -> EvalResult:
    worst = round(rng.uniform(0.2, 6), 2)
    first = [rng.randrange(program.shape[0]), rng.randrange(program.shape[1])] if rng.random() < 0.3 else [0, 0]
    values = f"{worst / 3:.4g} instead of {-worst / 2:.4g}"
    message = f"the output differs from the reference's by up to {worst:.3g}, first at index {first}: {values}"
    return EvalResult(
        task_id=program.task_id,
        status=EvalStatus.INCORRECT,
        correctness=False,
        trials=Trials(passed=0, total=_TRIALS, max_abs=worst),
        error=_error("WrongValues", message),
    )


def _broken(program: Program, variant: Variant) -> EvalResult:
    name, source = _kernel_name(variant), variant.source
    launch = _line(source, f"{name}[", "forward")
    if variant.flaw == "syntax":
        line = _line(source, "class ModelNew", "").split(",")[0]
        status, error = EvalStatus.REJECTED_STATIC, _error("syntax", f"{line}: not valid Python: expected ':'")
    elif variant.flaw in ("missing_import", "undefined_name"):
        from verl_kernel.env import check  # torch, which a usage error need not wait for

        found = check(source)[0]
        status, error = EvalStatus.REJECTED_STATIC, _error(found.rule, f"line {found.line}: {found.reason}")
    elif variant.flaw == "missing_argument":
        message = f"{name}() missing 1 required positional argument: 'BLOCK'"
        status, error = EvalStatus.RUNTIME_ERROR, _error("TypeError", message, launch)
    else:
        call = next(call for step in program.steps if f"{(call := step.op.invented.split('(')[0])}(" in source)
        number, line = _found(source, f"{call}(")
        reason = f"module 'triton.language' has no attribute '{call.removeprefix('tl.')}'"
        message = f"line {number}, in {name}, compiled for a GPU: {reason}: `{line}`"
        status, error = EvalStatus.COMPILE_ERROR, _error("AttributeError", message)
    return EvalResult(task_id=program.task_id, status=status, error=error)


def _kernel_name(variant: Variant) -> str:
    found = re.search(r"def (\w+_kernel)\(", variant.source)
    assert found is not None
    return found[1]


def _error(kind: str, message: str, tail: str | None = None) -> EvalError:
    return EvalError(stage="correctness", type=kind, message=message, traceback_tail=tail)


def _line(source: str, text: str, function: str) -> str:
    """Return a traceback's frame for the first line that holds `text`."""
    number, line = _found(source, text)
    return f"line {number}, in {function}: {line}"


def _found(source: str, text: str) -> tuple[int, str]:
    """Return number and text of the first line that holds `text`."""
    return next((number, line.strip()) for number, line in enumerate(source.splitlines(), 1) if text in line)
