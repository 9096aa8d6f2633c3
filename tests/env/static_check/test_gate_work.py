# SPDX-License-Identifier: Apache-2.0
"""The gate's work grows with the length of a text, whatever is in it. Counted in calls and lines, not in seconds."""

import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.env.static_check.gate_programs import ENTRY, HEADER
from tests.env.static_check.gate_shapes import SHAPES, text
from tests.tiers import thinned
from verl_kernel.env.static_check import check

SIZE = 100


def work(source: str) -> int:
    """Python functions, built-in functions and lines that one check runs."""
    count = 0

    def called(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    def traced(frame, event, argument):
        nonlocal count
        count += event == "line"
        return traced

    before = sys.gettrace(), sys.getprofile()
    sys.settrace(traced)
    sys.setprofile(called)
    try:
        check(source, "strict")
    finally:
        sys.setprofile(before[1])
        sys.settrace(before[0])
    return count


@pytest.fixture(scope="module")
def fixed() -> int:
    check(HEADER + ENTRY)
    return work(HEADER + ENTRY)


@pytest.mark.slow
@pytest.mark.parametrize("name", thinned(SHAPES, 27))
def test_twice_the_text_is_twice_the_work(name, fixed):
    for size in (SIZE, 2 * SIZE):  # what is found out once per process is found out now
        work(text(name, size))
    once, twice = (work(text(name, size)) - fixed for size in (SIZE, 2 * SIZE))
    assert twice < 2.6 * max(once, 200), (once, twice)


@pytest.mark.exhaustive
@settings(max_examples=3, deadline=None)
@example(["aliases of aliases backwards", "classes in a row", "classes that inherit in turn", "kernels"])
@given(st.lists(st.sampled_from(sorted(SHAPES)), min_size=2, max_size=4, unique=True))
def test_mixtures_are_no_worse(names):
    def mixed(size: int) -> str:
        return HEADER + "".join(SHAPES[name](size) for name in names) + ENTRY

    sizes = (50, 100, 200)
    for size in sizes:  # what is found out once per process is found out now
        work(mixed(size))
    # By differences: how much work is the same for any length depends on where the gate stops.
    small, middle, large = (work(mixed(size)) for size in sizes)
    assert large - middle < 2.2 * max(middle - small, 200), (small, middle, large)


@pytest.mark.slow
def test_there_is_an_end_to_what_is_read():
    found = check(HEADER + "x = (" + "1, " * 60_000 + ")\n" + ENTRY)
    assert [item.rule for item in found] == ["syntax"]
    assert "too much" in found[0].reason


@pytest.mark.slow
@pytest.mark.parametrize("name", thinned(SHAPES, 8))
def test_every_shape_is_a_verdict_at_full_length(name):
    source = HEADER
    while len(source) < 20_000:
        source += SHAPES[name](SIZE)
    assert all(item.reason and item.line >= 1 and len(item.reason) < 2000 for item in check(source + ENTRY, "strict"))
