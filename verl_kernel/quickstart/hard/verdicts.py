# SPDX-License-Identifier: Apache-2.0
"""Verdicts that the gym would return for answers of the hard world, without running them.

They only feed the cold start's feedback messages; no reward is ever computed from them. A test compares them with
the gym's own verdicts. Times are rough: each op takes its memory passes at one bandwidth.
"""

from __future__ import annotations

from random import Random

from verl_kernel.env import EvalError, EvalResult, EvalStatus, Trials, TrueSize
from verl_kernel.env.result import OUT_OF_BOUNDS
from verl_kernel.quickstart.hard.answers import Answer
from verl_kernel.quickstart.hard.ops import Step

_PASS_MS = 0.025
"""Time of one read or write of a tensor of the tasks' sizes."""
_HEAVY_PASSES = 3.0
"""Cost of the op that stays in torch, in memory passes."""
_CAST_PASSES = 1.5


def expected_verdict(answer: Answer, rng: Random) -> EvalResult:
    """Return the gym's likely verdict on an answer."""
    outcome = answer.outcome
    if outcome in ("ok", "decoy"):
        return _judged(answer)
    if outcome == "form":
        message = f"output 0 has dtype {answer.dtype} where the reference's has {answer.program.dtype}"
        return _refused(answer, EvalStatus.INCORRECT, "WrongDtype", message)
    if outcome == "wrong":
        worst = float(f"{10 ** rng.uniform(-3, 2):.3g}")
        values = f"{worst / 3:.4g} instead of {-worst / 2:.4g}"
        message = f"the output differs from the reference's by up to {worst:.3g}, first at index [0, 0]: {values}"
        trials = Trials(passed=0, total=2, max_abs=worst)
        return _refused(answer, EvalStatus.INCORRECT, "WrongValues", message).model_copy(update={"trials": trials})
    return _outside(answer, rng) if outcome == "outside" else _broken(answer)


def _judged(answer: Answer) -> EvalResult:
    layout, program = answer.layout, answer.program
    torch_steps = program.steps if layout.is_decoy else layout.before + layout.after
    heavy = _HEAVY_PASSES * len(program.head + program.tail)
    cast = _CAST_PASSES if program.dtype != "float32" else 0.0
    whole = heavy + cast + sum(step.op.passes for step in program.steps)
    own = 0.0 if layout.is_decoy else 2.0
    spent = heavy + own + sum(_passes(step, layout.is_decoy) for step in torch_steps)
    spent += cast if torch_steps or program.tail else 0.0
    facts = {
        "task_id": program.task_id, "status": EvalStatus.OK, "correctness": True, "speedup": whole / spent,
        "time_coverage": own / spent, "top_kernels": (("row_kernel", own * _PASS_MS),), "true_size": TrueSize(sizes=()),
    }  # fmt: skip
    if layout.is_decoy:
        text = "the output stays right when the kernels are not launched: it does not come from them"
        facts |= {"status": EvalStatus.DECOY, "decoy_kernel": True, "error": _error("LaunchIrrelevant", text)}
        facts |= {"hack_flags": ("only_moves",), "top_kernels": (("aten::mm", _HEAVY_PASSES * _PASS_MS),)}
    return EvalResult(**facts)  # type: ignore[arg-type]


def _passes(step: Step, by_builtin: bool) -> float:
    return 2.0 if by_builtin and step.op.builtin else step.op.passes


def _outside(answer: Answer, rng: Random) -> EvalResult:
    access = answer.flaw.removeprefix("unmasked_")
    line, _ = _find(answer.source, f"tl.{access}(")
    argument = "x_ptr" if access == "load" else "out_ptr"
    where = f"block {rng.randrange(8, 40)}, warp {rng.randrange(4)}, lane {rng.randrange(32)}"
    message = (
        f"line {line}, in row_kernel, compiled for a GPU and executed: a {access} lies outside of the launch's tensors "
        f"({where}), at element {rng.randrange(9000, 90000)} of {argument}: check the mask and the grid"
    )
    return _refused(answer, EvalStatus.CRASH, OUT_OF_BOUNDS, message)


def _broken(answer: Answer) -> EvalResult:
    if answer.flaw == "undefined_name":
        from verl_kernel.env import check  # torch, which a usage error need not wait for

        found = check(answer.source)[0]
        return _refused(answer, EvalStatus.REJECTED_STATIC, found.rule, f"line {found.line}: {found.reason}")
    frame = _frame(answer.source, "row_kernel[", "forward")
    if answer.flaw == "missing_argument":
        message = "row_kernel() missing 1 required positional argument: 'BLOCK'"
        return _refused(answer, EvalStatus.RUNTIME_ERROR, "TypeError", message, frame)
    calls = [step.op.invented.split("(")[0].removeprefix("tl.") for step in answer.layout.inside]
    name = next(call for call in calls if f"tl.{call}(" in answer.source)
    line, text = _find(answer.source, f"tl.{name}(")
    reason = f"module 'triton.language' has no attribute '{name}'"
    message = f"line {line}, in row_kernel, compiled for a GPU: {reason}: `{text[:80]}`"
    return _refused(answer, EvalStatus.COMPILE_ERROR, "AttributeError", message)


def _refused(answer: Answer, status: EvalStatus, kind: str, message: str, tail: str | None = None) -> EvalResult:
    unknown = "the evaluation ended at a reduced size"
    return EvalResult(
        task_id=answer.program.task_id, status=status, correctness=False, true_size=TrueSize(sizes=(), unknown=unknown),
        error=_error(kind, message, tail),
    )  # fmt: skip


def _error(kind: str, message: str, tail: str | None = None) -> EvalError:
    return EvalError(stage="correctness", type=kind, message=message, traceback_tail=tail)


def _frame(source: str, text: str, function: str) -> str:
    """Return a traceback's frame for the first line that holds `text`."""
    number, line = _find(source, text)
    return f"line {number}, in {function}: {line}"


def _find(source: str, text: str) -> tuple[int, str]:
    """Return number and text of the first line that holds `text`."""
    return next((number, line.strip()) for number, line in enumerate(source.splitlines(), 1) if text in line)
