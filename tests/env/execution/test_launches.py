# SPDX-License-Identifier: Apache-2.0
"""What a runner may ask of the executing process, and what comes of requests that no runner sends."""

import os
from collections.abc import Iterator

import pytest

from verl_kernel.env.execution.arena import Arena
from verl_kernel.env.execution.launches import Launches

SIZE = 1 << 20
UNIT = {
    "launch": {"function": 0, "positional": [], "named": {}, "options": {}},
    "functions": [
        {"name": "k", "line": 4, "is_constant": False, "marks": {}, "defaults": {}, "settings": {}, "uses": {}}
    ],
}
REQUEST = {"unit": UNIT, "grid": [1, 1, 1], "arguments": {}, "areas": [], "is_tried": False, "kept": None}


@pytest.fixture
def arena() -> Iterator[Arena]:
    fd = os.memfd_create("arena")
    os.ftruncate(fd, SIZE)
    yield Arena(fd, SIZE)
    os.close(fd)


@pytest.fixture
def launches(arena, tmp_path) -> Launches:
    file = tmp_path / "candidate.py"
    file.write_text("import triton\n\n@triton.jit\ndef k():\n    pass\n")
    return Launches(str(file), arena)


@pytest.mark.parametrize(("offset", "length"), [(-1, 4), (0, SIZE + 1), (SIZE - 3, 4), (0.5, 1), (0, True), (2**70, 0)])
def test_a_piece_outside_of_the_arena_has_no_address(arena, offset, length):
    with pytest.raises(ValueError, match="arena"):
        arena.address(offset, length)


def test_a_piece_inside_lies_behind_its_offset(arena):
    assert arena.address(SIZE, 0) - arena.address(16, SIZE - 16) == SIZE - 16


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {**REQUEST, "unit": None},
        {key: value for key, value in REQUEST.items() if key != "kept"},
        {**REQUEST, "unit": {"launch": {}, "functions": []}},
        {**REQUEST, "unit": {**UNIT, "functions": []}},
    ],
)
def test_what_cannot_be_read_is_told_to_the_judge(launches, request_):
    assert launches.run(request_)["failure"].startswith("a launch cannot be read: ")
    reported = launches.report(0, False)
    assert reported["stopped"]["kind"] == "unreadable" and reported["works"] == []
    assert launches.report(0, False)["stopped"] is None


def test_clusters_are_said_to_be_unknown(launches):
    unit = {**UNIT, "launch": {**UNIT["launch"], "options": {"num_ctas": 2}}}
    assert "clusters" in launches.run({**REQUEST, "unit": unit})["failure"]
    assert launches.report(0, False)["stopped"]["kind"] == "unknown"


def test_what_is_tried_stops_nothing(launches):
    unit = {**UNIT, "launch": {**UNIT["launch"], "options": {"num_ctas": 2}}}
    assert launches.run({**REQUEST, "unit": unit, "is_tried": True})["failure"]
    assert launches.report(0, False)["stopped"] is None


def test_a_function_that_the_source_does_not_hold_is_refused(launches):
    unit = {**UNIT, "functions": [{**UNIT["functions"][0], "line": 99}]}
    launches.run({**REQUEST, "unit": unit})
    assert launches.report(0, False)["stopped"]["kind"] == "refused"
