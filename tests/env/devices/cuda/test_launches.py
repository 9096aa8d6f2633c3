# SPDX-License-Identifier: Apache-2.0
"""How launches of compiled kernels are seen, tuned and suppressed; the kernels are in compiled_cases.py."""

import json
from pathlib import Path

import pytest

from tests.env.processes import printed

CASES = Path(__file__).with_name("compiled_cases.py")


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    return json.loads(printed(CASES, TRITON_CACHE_DIR=str(tmp_path_factory.mktemp("cache"))))


OWN = str(CASES)
SEEN = [
    ("grid and file of a launch", "tuple", [("copy", [8, 1, 1], OWN, False)]),
    ("a grid that is a function", "function", [("copy", [16, 1, 1], OWN, False)]),
    ("the name is the one a profiler sees", "renamed", [("copy_block_256", [4, 1, 1], OWN, False)]),
    ("trials of an autotuner are left out", "tuned", [("copy", [16, 1, 1], OWN, False)]),
    ("a kernel that does not compile is a failed launch", "broken", [("broken", [1, 1, 1], OWN, True)]),
    ("a launch past the jit function is nobody's own", "direct", [("copy", [], "", False)]),
]
TOLD = [
    ("an empty grid is no launch", "empty", {"events": [], "error": None, "launches": 1}),
    ("a suppressed launch reaches no launcher", "suppressed", {"launches": 0, "error": None}),
    ("a suppressed autotuner reaches no launcher", "suppressed_tuned", {"launches": 0, "error": None}),
    ("nothing stays wrapped", "unhindered", {"events": 0, "same": True}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("fact", "case", "expected"), SEEN)
def test_what_is_seen_of_a_launch(cases, fact, case, expected):
    events = cases[case]["events"]
    assert [(event["name"], event["grid"], event["source"], event["failed"]) for event in events] == expected


@pytest.mark.parametrize(("fact", "case", "expected"), TOLD)
def test_what_becomes_of_a_launch(cases, fact, case, expected):
    assert cases[case] == expected


def test_launches_and_errors(cases):
    assert cases["tuned"]["launches"] == 7
    assert "TritonError" in cases["broken"]["error"]
    assert cases["direct"]["launches"] == 1
    assert cases["suppressed_direct"]["launches"] == 0
    assert "past its jit function" in cases["suppressed_direct"]["error"]
