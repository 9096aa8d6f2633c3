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


def seen(case):
    return [(event["name"], event["grid"], event["source"], event["failed"]) for event in case["events"]]


@pytest.mark.slow
def test_grid_and_file_of_a_launch(cases):
    assert seen(cases["tuple"]) == [("copy", [8, 1, 1], str(CASES), False)]
    assert seen(cases["function"]) == [("copy", [16, 1, 1], str(CASES), False)]


def test_the_name_is_the_one_a_profiler_sees(cases):
    assert seen(cases["renamed"]) == [("copy_block_256", [4, 1, 1], str(CASES), False)]


def test_trials_of_an_autotuner_are_left_out(cases):
    assert cases["tuned"]["launches"] == 7
    assert seen(cases["tuned"]) == [("copy", [16, 1, 1], str(CASES), False)]


def test_a_kernel_that_does_not_compile_is_a_failed_launch(cases):
    assert seen(cases["broken"]) == [("broken", [1, 1, 1], str(CASES), True)]
    assert "TritonError" in cases["broken"]["error"]


def test_an_empty_grid_is_no_launch(cases):
    assert cases["empty"] == {"events": [], "error": None, "launches": 1}


def test_a_launch_past_the_jit_function_is_nobodys_own(cases):
    assert cases["direct"]["launches"] == 1
    assert seen(cases["direct"]) == [("copy", [], "", False)]


def test_suppressed_launches_reach_no_launcher(cases):
    assert cases["suppressed"] == {"launches": 0, "error": None}
    assert cases["suppressed_tuned"] == {"launches": 0, "error": None}
    assert cases["suppressed_direct"]["launches"] == 0
    assert "past its jit function" in cases["suppressed_direct"]["error"]


def test_nothing_stays_wrapped(cases):
    assert cases["unhindered"] == {"events": 0, "same": True}
