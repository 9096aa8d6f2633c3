# SPDX-License-Identifier: Apache-2.0
import pytest

from verl_kernel.env.true_size import opcodes

PATH = "somewhere/kernel.py"
SOURCE = """def chosen(n):
    size = n * 2 if n > 10 else n
    return helper(size)

def helper(n):
    return n
"""


def traced(n, times=1):
    names = {}
    exec(compile(SOURCE, PATH, "exec"), names)
    tracer = opcodes.Tracer(PATH)
    with tracer.on():
        for _ in range(times):
            names["chosen"](n)
    return tracer.seen


def test_instructions_of_the_file_are_seen_once_each():
    seen = traced(3)
    assert {line for _, line, _ in seen} >= {2, 3, 6} and traced(3, times=3) == traced(4) == seen


def test_a_branch_within_a_line_is_seen():
    new = traced(30) - traced(3)
    assert new and {(function, line) for function, line, _ in new} == {(1, 2)}


def test_instructions_survive_json():
    assert opcodes.load(opcodes.dump(traced(3))) == traced(3)


@pytest.mark.parametrize("value", [None, [], {"1:2": 3}, {"1:2": [-1]}, {"1:2": [True]}, {"x": [1]}, {"1": [1]}])
def test_what_no_tracer_wrote_is_refused(value):
    with pytest.raises(ValueError):
        opcodes.load(value)
