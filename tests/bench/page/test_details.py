# SPDX-License-Identifier: Apache-2.0
"""What the page shows of a task once it is opened, packed into the page."""

import base64
import gzip
import json
import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.page.judged import OPTIONS, source
from tests.bench.page.runs import answer, right, timing
from verl_kernel.bench.page.details import (
    CODE_LIMIT,
    Remark,
    completion_limit,
    reason,
    remarks,
    source_lines,
    task_details,
)
from verl_kernel.bench.page.task_rows import task_rows
from verl_kernel.bench.page.texts import cut_middle, packed
from verl_kernel.env import EvalError, EvalResult, EvalStatus, LocalPool, MemoryFinding, Task
from verl_kernel.env.result import Launch, TrueSize
from verl_kernel.figures.attempts import PlannedTask, RunPlan
from verl_kernel.generated_tasks.answers import all_answers
from verl_kernel.generated_tasks.chains import ChainStep, Program


def details(*turns, limit=1000):
    asked = RunPlan((PlannedTask("t1", 2, "softmax"),), samples=4, turns=4)
    return task_details(task_rows(asked, turns)[0], limit)


def turn(one, limit=1000):
    return details(one, limit=limit)["samples"][0]["turns"][0]


def test_samples_hold_their_turns_in_order():
    found = details(answer(sample=1, turn=2), answer(sample=1), right(sample=0, turn=3))
    turns = [(one["sample"], [each["turn"] for each in one["turns"]]) for one in found["samples"]]
    assert turns == [(0, [3]), (1, [1, 2])]
    assert (found["task"], found["level"], found["family"], found["chosen"]) == ("t1", 2, "softmax", (0, 3))


def test_an_answer_is_called_best_only_where_it_is_right():
    assert details(answer(), right(turn=2))["best"] == (0, 2)
    wrong = details(answer(), answer(turn=2))
    assert wrong["chosen"] is not None
    assert wrong["best"] is None


def test_the_reference_comes_with_the_task():
    (row,) = task_rows(RunPlan((PlannedTask("t1"),), 1, 1), [right()])
    assert task_details(row, 100, "a = 1\nb = 2")["reference"] == ["a = 1", "b = 2"]
    assert task_details(row, 100)["reference"] is None
    assert task_details(row, 100, "x = 1\n" * CODE_LIMIT)["reference_cut"] == 5 * CODE_LIMIT


def test_a_kernel_comes_with_its_lines_and_what_is_said_there():
    finding = MemoryFinding(kind="uninitialised_read", kernel="f", line=2, message="it reads what nobody wrote")
    found = turn(answer(code="a = 1\nb = 2", status=EvalStatus.UNSAFE, memory_findings=(finding,)))
    assert found["code"] == ["a = 1", "b = 2"]
    assert (found["status"], found["group"]) == ("unsafe", "wrong")
    assert [(one["line"], one["kind"]) for one in found["remarks"]] == [(2, "memory")]


def test_long_texts_are_cut_and_say_so():
    code = "x = 1\n" * (CODE_LIMIT // 6) + "y = 2222222222"
    found = turn(answer(code=code, completion="z" * 3000), limit=1200)
    assert (found["code_cut"], found["completion_cut"]) == (len(code) - CODE_LIMIT, 1800)
    assert "".join(found["code"]) in code.replace("\n", "")
    assert "1,800 characters left out" in found["completion"]


@pytest.mark.parametrize(("answers", "limit"), [(0, 16_000), (2_000, 16_000), (8_000, 4_000), (10**6, 1_000)])
def test_many_answers_share_the_room_of_a_page(answers, limit):
    assert completion_limit(answers) == limit


def test_times_and_profile_are_those_of_the_answer():
    others = ((f"op{number}", 0.025) for number in range(10))
    names = (("aten::add", 0.25), ("fused", 0.5), *others, ("odd", float("nan")))
    found = turn(right(top_kernels=names, launches=(Launch(name="fused", grid=(4,), count=1),)))
    assert [(one["name"], one["text"]) for one in found["times"]] == [("reference", "15 µs"), ("kernel", "10 µs")]
    assert found["times"][1]["range"] == "9.5 µs to 10.5 µs, 100 calls"
    assert [one["name"] for one in found["profile"] if one["own"]] == ["fused"]
    assert (found["profile"][-1]["name"], found["profile"][-1]["share"]) == ("4 others", pytest.approx(0.1))
    assert sum(one["share"] for one in found["profile"]) == pytest.approx(1.0)


def test_a_simulated_time_without_a_spread_says_so():
    spent = timing(0.01, spread=0.0)
    assert turn(right(kernel_ms=spent))["times"][1]["range"] == "simulated, no spread"
    measured = turn(right(kernel_ms=spent, timing_source="cuda_event"))
    assert measured["times"][1]["range"] == "10 µs to 10 µs, 100 calls"


def test_numbers_that_json_lacks_are_left_out():
    odd = timing(float("inf")).model_copy(update={"p20": float("nan")})
    facts = {"kernel_ms": odd, "reference_ms": timing(0.01), "time_coverage": float("nan")}
    found = details(right(speedup=float("inf"), reward=float("nan"), **facts))
    json.dumps(found, allow_nan=False)
    assert [one["name"] for one in found["samples"][0]["turns"][0]["times"]] == ["reference"]


def test_the_reason_says_what_is_known():
    error = EvalError(stage="load", type="ImportError", message=" no module \n")
    assert reason(answer(error=error, hack_flags=("only_moves",))) == "ImportError: no module; flags: only_moves"
    nothing = EvalError(stage="extract", type="NoCode", message="the answer holds no closed ```python block")
    assert reason(answer(error=nothing, failure="no_code")) == "the answer holds no program"
    assert reason(right()) == ""


def test_facts_are_those_that_are_known():
    facts = dict(turn(right(speedup=1.5, time_coverage=0.925, prompt_tokens=1234, shown=(1,)))["facts"])
    assert facts["coverage"] == "92% of device time in its own kernels"
    assert facts["tokens"] == "1,234 in"
    assert facts["prompt shows"] == "turn 1"
    assert facts["speedup"] == "1.50x"
    assert "trials" not in facts
    measured = dict(turn(right(speedup=1.5, speedup_low=1.25, timing_source="cuda_event"))["facts"])
    assert measured["speedup"] == "1.50x, surely 1.25x"
    trials = {"passed": 1, "total": 2, "max_abs": 0.5, "first_bad_index": (0, 3)}
    said = dict(turn(answer(trials=trials))["facts"])["trials"]
    assert said == "1 of 2 agree, largest difference 0.5, first at (0, 3)"


CODE = """import triton

@triton.jit
def f(x):
    tl.load(x)
    tl.store(x)

def host():
    f[(1,)](1)
    return 2
"""
COMPILER = "at 3:4:\ndef f(x):\n    tl.load(x)\n    tl.store(x)\n    ^\nAssertionError('two arguments')"
FRAMES = "line 9, in host: f[(1,)](1)\nline 5, in f: tl.load(x)"
CALLER = (9, "caller", "on the way to the error")


def verdict(message=None, kind="ValueError", tail=None, **facts):
    error = EvalError(stage="correctness", type=kind, message=message, traceback_tail=tail) if message else None
    return EvalResult(**{"task_id": "t", "status": EvalStatus.RUNTIME_ERROR, "error": error} | facts)


RACE = MemoryFinding(kind="race", kernel="f", line=5, message="block 3 has stored to x, too")
UNKNOWN = "line 5 runs at the true size what never ran where the output was verified"


@pytest.mark.parametrize(
    ("judged", "found"),
    [
        (verdict("line 5: tl is bound nowhere", "unbound"), [(5, "error", "unbound: tl is bound nowhere")]),
        (verdict("line 6, in kernel f: no room: `x`"), [(6, "error", "ValueError: no room: `x`")]),
        (verdict("line 6, in f, compiled for sm_90: no room: `x`"), [(6, "error", "ValueError: no room: `x`")]),
        # An error stands at its innermost frame, but where its message names a line.
        (verdict("no such thing", tail=FRAMES), [(5, "error", "ValueError: no such thing"), CALLER]),
        (verdict("line 6, in kernel f: bad", tail=FRAMES), [(5, *CALLER[1:]), (6, "error", "ValueError: bad"), CALLER]),
        # A frame is only what begins a line.
        (verdict("no", tail='line 9, in host: print("line 5, in f: x")'), [(9, "error", "ValueError: no")]),
        # A compiler's message counts from the kernel's def.
        (verdict(COMPILER, "CompilationError"), [(6, "error", "CompilationError: AssertionError('two arguments')")]),
        (verdict("invalid syntax (kernel.py, line 4)", "SyntaxError"), [(4, "error", "SyntaxError: invalid syntax")]),
        (verdict(memory_findings=(RACE,)), [(5, "memory", "race: block 3 has stored to x, too")]),
        (verdict(memory_findings=(RACE.model_copy(update={"line": None}),)), []),
        (verdict(true_size=TrueSize(sizes=({64: 8},), unknown=UNKNOWN)), [(5, "note", f"no time: {UNKNOWN}")]),
        (verdict("the output differs from the reference's by up to 3"), []),
        (verdict(), []),
    ],
)
def test_a_remark_stands_at_the_line_that_the_verdict_names(judged, found):
    assert remarks(judged, CODE) == [Remark(*one) for one in found]


def test_a_message_about_a_twice_defined_kernel_has_no_line():
    assert remarks(verdict("at 2:4:\ndef f(x):\n    tl.load(x)\n    ^\nno"), CODE + CODE) == []


@pytest.mark.parametrize(
    ("line", "code", "found"),
    [("3", "a\nb", [2]), ("5", "a\nb\n\n", [2]), ("4", "a\nb", []), ("0", "a\nb", []), ("9" * 5000, "a\nb", [])],
    ids=str,
)
def test_a_line_just_past_the_end_is_the_last_one(line, code, found):
    assert [one.line for one in remarks(verdict(f"line {line}: unexpected end"), code)] == found


def test_lines_are_counted_as_python_counts_them():
    assert source_lines("a\r\nb\rc\nd\x0ce\u2028f\n\n") == ["a", "b", "c", "d\x0ce\u2028f"]


PROGRAM = Program((ChainStep("abs"), ChainStep("softmax")), (6, 100, 16))
FLAWS = {one.name: one.source for one in all_answers(PROGRAM, Random(14))}
FUSED = next(iter(FLAWS.values()))
ABS, SHAPE, UNBOUND = "h1 = tl.abs(x)", "h1 = x + tl.zeros((BLOCK // 3,), tl.float32)[:1]", "h1 = y"
MAYBE_UNBOUND = FUSED.replace(ABS, f"{ABS}\n    if cols > 4:\n        y = x\n    {UNBOUND}")
FAULTS = {
    "outside": (source(PROGRAM, "outside", Random(14)), EvalStatus.CRASH, "x = tl.load("),
    "gate": (FLAWS["syntax"], EvalStatus.REJECTED_STATIC, "class ModelNew(nn.Module)"),
    "launch": (FLAWS["missing_argument"], EvalStatus.RUNTIME_ERROR, "fused_kernel[(rows,)]("),
    "shape": (FUSED.replace(ABS, SHAPE), EvalStatus.COMPILE_ERROR, SHAPE),
    "compiler": (MAYBE_UNBOUND, EvalStatus.COMPILE_ERROR, UNBOUND),
}


@pytest.mark.processes
def test_a_remark_stands_at_the_line_that_is_at_fault():
    task = Task(PROGRAM.reference, PROGRAM.task_id)
    with LocalPool(OPTIONS, seed=14) as pool:
        results = pool.evaluate_many([(task, code) for code, *_ in FAULTS.values()])
    for (fault, (code, status, line)), result in zip(FAULTS.items(), results, strict=True):
        assert result.status is status, (fault, result.error)
        (found,) = [one for one in remarks(result, code) if one.kind == "error"]
        assert source_lines(code)[found.line - 1].strip().startswith(line), (fault, found)


@given(st.text(st.characters()))
def test_packed_data_holds_no_markup_and_comes_back(text):
    letters = packed({"text": text})
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", letters)
    assert json.loads(gzip.decompress(base64.b64decode(letters))) == {"text": text}
    assert packed({"text": text}) == letters


@pytest.mark.slow
@given(st.text(), st.integers(1, 50))
def test_a_cut_text_keeps_both_ends_and_says_how_much_is_gone(text, limit):
    shown, left_out = cut_middle(text, limit)
    assert left_out == max(0, len(text) - limit)
    if left_out:
        head, _, tail = shown.partition(f"\n[... {left_out:,} characters left out ...]\n")
        assert len(head) + len(tail) == limit
        assert text.startswith(head)
        assert text.endswith(tail)
    else:
        assert shown == text
