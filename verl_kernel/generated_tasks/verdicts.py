# SPDX-License-Identifier: Apache-2.0
"""Verdicts that the gym would return for generated answers, without running them.

They only feed the feedback messages of the cold start; no reward is ever computed from them. A test compares them with
the gym's own verdicts. Times are rough: every device kernel takes the same time.
"""

from __future__ import annotations

import re
from collections import Counter
from random import Random
from typing import Any

from verl_kernel.env import EvalError, EvalResult, EvalStatus, Trials, check
from verl_kernel.env.result import OUT_OF_BOUNDS
from verl_kernel.generated_tasks.answers import Answer
from verl_kernel.generated_tasks.chains import Program, launched
from verl_kernel.generated_tasks.kinds import Kind

_OP_MS = 0.004
"""Time of one small kernel on the simulated clock: mostly launch overhead."""
_TRIALS = 3
"""Correctness trials, as in the quickstart's recipe."""
_KERNEL = re.compile(r"^def (\w+)\(", re.MULTILINE)


def expected_verdict(answer: Answer, rng: Random) -> EvalResult:
    """Return the gym's likely verdict on an answer."""
    if answer.kind is Kind.BROKEN:
        return _broken(answer)
    if answer.kind is Kind.OUTSIDE:
        return _outside(answer, rng)
    if answer.kind is Kind.TYPE:
        message = f"output 0 has dtype {answer.dtype} where the reference's has {answer.program.dtype}"
        return _refused(answer, EvalStatus.INCORRECT, "WrongDtype", message)
    return _wrong(answer, rng) if answer.kind is Kind.WRONG else _judged(answer)


def reference_ops(program: Program) -> list[str]:
    """Return the ops that torch executes in one forward of the reference."""
    cast = ["_to_copy"] * (program.dtype != "float32")
    return [name for step in program.steps for name in launched(step)] + cast


def _judged(answer: Answer) -> EvalResult:
    is_decoy = answer.kind is Kind.DECOY
    kernel_names = _kernel_names(answer)[: 0 if answer.name == "never_launched" else None]
    times = Counter(f"aten::{name}" for name in answer.torch_ops) + Counter(kernel_names)
    longest = sorted(times.items(), key=lambda item: (-item[1], item[0]))
    facts: dict[str, Any] = {
        "speedup": len(reference_ops(answer.program)) / times.total(),
        "time_coverage": len(kernel_names) / times.total(),
        "top_kernels": tuple((name, count * _OP_MS) for name, count in longest),
    }
    if is_decoy and kernel_names:
        message = "the output stays right when the kernels are not launched: it does not come from them"
        facts["error"] = _error("LaunchIrrelevant", message)
    elif is_decoy:
        message = "a forward launched no kernel of the source: its output does not come from Triton"
        facts["error"] = _error("NoLaunch", message)
    status = EvalStatus.DECOY if is_decoy else EvalStatus.OK
    return EvalResult(task_id=answer.program.task_id, status=status, correctness=True, decoy_kernel=is_decoy, **facts)


def _wrong(answer: Answer, rng: Random) -> EvalResult:
    worst = float(f"{10 ** rng.uniform(-1, 1.5):.3g}")
    first = [0, 0 if rng.random() < 0.7 else rng.randrange(8)]
    values = f"{worst / 3:.4g} instead of {-worst / 2:.4g}"
    message = f"the output differs from the reference's by up to {worst:.3g}, first at index {first}: {values}"
    trials = Trials(passed=0, total=_TRIALS, max_abs=worst)
    return _refused(answer, EvalStatus.INCORRECT, "WrongValues", message).model_copy(update={"trials": trials})


def _outside(answer: Answer, rng: Random) -> EvalResult:
    access = answer.name.removeprefix("unmasked_")
    line, _ = _find(answer.source, r"tl\.load\(x_ptr" if access == "load" else r"tl\.store\(")
    argument = "x_ptr" if access == "load" else "out_ptr"
    where = f"block {rng.randrange(24)}, warp {rng.randrange(4)}, lane {rng.randrange(32)}"
    message = (
        f"line {line}, in {_kernel_names(answer)[0]}, compiled for a GPU and executed: a {access} lies outside of the "
        f"launch's tensors ({where}), at element {rng.randrange(200, 7000)} of {argument}: check the mask and the grid"
    )
    return _refused(answer, EvalStatus.CRASH, OUT_OF_BOUNDS, message)


def _broken(answer: Answer) -> EvalResult:
    source = answer.source
    if answer.name == "syntax":
        line, _ = _find(source, "class ModelNew")
        return _refused(answer, EvalStatus.REJECTED_STATIC, "syntax", f"line {line}: not valid Python: expected ':'")
    if answer.name in ("missing_import", "undefined_name"):
        finding = check(source)[0]
        return _refused(answer, EvalStatus.REJECTED_STATIC, finding.rule, f"line {finding.line}: {finding.reason}")
    if answer.name == "missing_argument":
        return _missing_arguments(answer)
    line, text = _find(source, r"^h\d = tl\.\w+\((x|h\d)\)$")
    name = [match[1] for match in re.finditer(_KERNEL, "\n".join(source.splitlines()[:line]))][-1]
    reason = f"module 'triton.language' has no attribute '{text.partition('tl.')[2].partition('(')[0]}'"
    message = f"line {line}, in {name}, compiled for a GPU: {reason}: `{text}`"
    return _refused(answer, EvalStatus.COMPILE_ERROR, "AttributeError", message)


def _missing_arguments(answer: Answer) -> EvalResult:
    """Return the verdict on the first launch that lacks its blocks."""
    line, text = _find(answer.source, r"_kernel\[(?!.*BLOCK=)")
    name = text.partition("[")[0]
    lost = re.findall(r"(\w+): tl\.constexpr", _find(answer.source, rf"def {name}\(")[1])
    names = f"argument{'s' * (len(lost) > 1)}: {' and '.join(map(repr, lost))}"
    message = f"{name}() missing {len(lost)} required positional {names}"
    return _refused(answer, EvalStatus.RUNTIME_ERROR, "TypeError", message, f"line {line}, in forward: {text}")


def _refused(answer: Answer, status: EvalStatus, kind: str, message: str, tail: str | None = None) -> EvalResult:
    error = _error(kind, message, tail)
    return EvalResult(task_id=answer.program.task_id, status=status, correctness=False, error=error)


def _error(kind: str, message: str, tail: str | None = None) -> EvalError:
    return EvalError(stage="correctness", type=kind, message=message, traceback_tail=tail)


def _kernel_names(answer: Answer) -> list[str]:
    return re.findall(_KERNEL, answer.source)


def _find(source: str, pattern: str) -> tuple[int, str]:
    """Return number and text of the first line that holds a pattern."""
    lines = ((number, line.strip()) for number, line in enumerate(source.splitlines(), 1))
    return next((number, line) for number, line in lines if re.search(pattern, line))
