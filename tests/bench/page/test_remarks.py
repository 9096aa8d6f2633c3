# SPDX-License-Identifier: Apache-2.0
import pytest

from verl_kernel.bench.page.details import Remark, remarks, source_lines
from verl_kernel.env import EvalError, EvalResult, EvalStatus, MemoryFinding
from verl_kernel.env.result import TrueSize

CODE = """import triton

@triton.jit
def f(x):
    tl.load(x)
    tl.store(x)

def host():
    f[(1,)](1)
    return 2
"""


def verdict(**facts):
    return EvalResult(**{"task_id": "t", "status": EvalStatus.RUNTIME_ERROR} | facts)


def failed(message, tail=None, kind="ValueError"):
    return verdict(error=EvalError(stage="correctness", type=kind, message=message, traceback_tail=tail))


def test_a_message_of_the_gate_stands_at_the_line_it_names():
    assert remarks(failed("line 5: tl is bound nowhere", kind="unbound"), CODE) == [
        Remark(5, "error", "unbound: tl is bound nowhere")
    ]


@pytest.mark.parametrize("where", ["in kernel f", "in f, compiled for sm_90"])
def test_a_message_about_a_kernel_stands_at_its_line(where):
    assert remarks(failed(f"line 6, {where}: no room: `tl.store(x)`"), CODE) == [
        Remark(6, "error", "ValueError: no room: `tl.store(x)`")
    ]


def test_an_error_stands_at_its_innermost_frame():
    found = remarks(failed("no such thing", "line 9, in host: f[(1,)](1)\nline 5, in f: tl.load(x)"), CODE)
    assert found == [Remark(5, "error", "ValueError: no such thing"), Remark(9, "caller", "on the way to the error")]


def test_a_line_named_by_the_message_wins_over_the_frames():
    found = remarks(failed("line 5, in kernel f: bad", "line 9, in host: f[(1,)](1)\nline 5, in f: tl.load(x)"), CODE)
    assert [(one.line, one.kind) for one in found] == [(5, "error"), (9, "caller")]


def test_a_frame_is_only_what_begins_a_line():
    tail = 'line 9, in host: print("line 5, in f: x")'
    assert [one.line for one in remarks(failed("no", tail), CODE)] == [9]


def test_a_compilers_message_counts_from_the_kernels_def():
    message = "at 3:4:\ndef f(x):\n    tl.load(x)\n    tl.store(x)\n    ^\nAssertionError('two arguments')"
    assert remarks(failed(message, kind="CompilationError"), CODE) == [
        Remark(6, "error", "CompilationError: AssertionError('two arguments')")
    ]


def test_a_message_about_a_twice_defined_kernel_has_no_line():
    message = "at 2:4:\ndef f(x):\n    tl.load(x)\n    ^\nno"
    assert remarks(failed(message), CODE + CODE) == []


def test_an_error_of_syntax_stands_at_the_line_behind_it():
    assert remarks(failed("invalid syntax (kernel.py, line 4)", kind="SyntaxError"), CODE) == [
        Remark(4, "error", "SyntaxError: invalid syntax")
    ]


def test_a_line_just_past_the_end_is_the_last_one():
    assert [one.line for one in remarks(failed("line 3: unexpected end"), "a\nb")] == [2]
    assert [one.line for one in remarks(failed("line 5: unexpected end"), "a\nb\n\n")] == [2]
    assert remarks(failed("line 4: what"), "a\nb") == remarks(failed("line 0: what"), "a\nb") == []
    assert remarks(failed(f"line {'9' * 5000}: what"), "a\nb") == []


def test_a_memory_finding_stands_at_its_line():
    race = MemoryFinding(kind="race", kernel="f", line=5, message="block 3 has stored to x, too")
    (remark,) = remarks(verdict(memory_findings=(race,)), CODE)
    assert (remark.line, remark.kind, remark.text) == (5, "memory", "race: block 3 has stored to x, too")


def test_a_memory_finding_without_a_line_stands_nowhere():
    race = MemoryFinding(kind="race", kernel="f", message="somewhere")
    assert remarks(verdict(memory_findings=(race,)), CODE) == []


def test_what_has_no_time_at_its_true_size_says_so_at_the_line():
    unknown = "line 5 runs at the true size what never ran where the output was verified"
    found = remarks(verdict(true_size=TrueSize(sizes=({64: 8},), unknown=unknown)), CODE)
    assert found == [Remark(5, "note", f"no time: {unknown}")]


def test_a_verdict_without_a_place_has_no_remark():
    assert remarks(failed("the output differs from the reference's by up to 3"), CODE) == []
    assert remarks(verdict(), CODE) == []


def test_lines_are_counted_as_python_counts_them():
    assert source_lines("a\r\nb\rc\nd\x0ce\u2028f\n\n") == ["a", "b", "c", "d\x0ce\u2028f"]
