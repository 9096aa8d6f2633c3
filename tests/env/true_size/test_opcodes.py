# SPDX-License-Identifier: Apache-2.0
from itertools import product

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


def test_of_a_large_grid_the_edges_and_some_between_are_watched():
    for grid in ((40, 1, 1), (24, 1, 1), (9, 9, 1), (3, 4, 30), (1000, 1, 1)):
        every = list(product(*map(range, grid)))
        watched = {index for index in every if opcodes.is_watched(index, grid)}
        assert set(product(*({0, size - 1} for size in grid))) <= watched
        assert len(watched) <= 40 and len({sum(index) % 2 for index in watched}) == 2
    assert all(opcodes.is_watched((i, 0, 0), (8, 1, 1)) for i in range(8))


def test_a_launch_is_watched_in_parts_and_what_follows_it_whole():
    names = {}
    exec(compile(SOURCE, PATH, "exec"), names)
    tracer = opcodes.Tracer(PATH)
    with tracer.on():
        for number in range(40):
            tracer.begin_program((number, 0, 0), (40, 1, 1))
            names["chosen"](30 if number == 2 else 3)  # the third program of 40 is not watched
        in_launch = set(tracer.seen)
        tracer.end_launch()
        names["chosen"](30)
    assert in_launch == traced(3) and tracer.seen == traced(3) | traced(30)


@pytest.mark.parametrize("value", [None, [], {"1:2": 3}, {"1:2": [-1]}, {"1:2": [True]}, {"x": [1]}, {"1": [1]}])
def test_what_no_tracer_wrote_is_refused(value):
    with pytest.raises(ValueError):
        opcodes.load(value)
