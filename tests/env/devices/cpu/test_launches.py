# SPDX-License-Identifier: Apache-2.0
"""Launches where kernels run compiled: what is described, asked of the executing process, and recorded."""

import json
from functools import reduce
from pathlib import Path

import pytest

from tests.env.processes import printed
from verl_kernel.env.devices import CPU_VARIABLES


@pytest.fixture(scope="module")
def cases():
    return json.loads(printed(Path(__file__).with_name("launch_cases.py"), **CPU_VARIABLES))


TENSOR = {"tensor": {"dtype": "float32", "aligned": True}}
PAIR = {"tuple": {"name": "Pair", "fields": ["left", "right"], "values": [1, {"float": "0.5"}]}}
NAMES = ("the kernel's names stand for what they stood for at the launch", "so do those of the functions that it calls")
FACTS = [
    ("a launch is told as the compiler distinguishes it", "unit launch", {
        "function": 0, "positional": [TENSOR, 3, PAIR], "named": {}, "options": {"num_warps": 8}
    }),
    ("a kernel comes with the functions that it calls", "unit functions 0 name", "kernel"),
    ("a kernel comes with the functions that it calls", "unit functions 1 name", "helper"),
    ("a kernel comes with the functions that it calls", "unit functions 2 name", "rounded"),
    (NAMES[0], "unit functions 0 uses KIND", {"dtype": "fp16"}),
    (NAMES[0], "unit functions 0 uses tl", {"module": "triton.language"}),
    (NAMES[0], "unit functions 0 uses libdevice", {"module": "triton.language.extra.libdevice"}),
    (NAMES[0], "unit functions 0 uses helper", {"function": 1}),
    (NAMES[0], "unit functions 0 uses rounded", {"function": 2}),
    (NAMES[1], "unit functions 1 uses SCALE", {"constexpr": 3}),
    (NAMES[1], "unit functions 1 uses exp", {"member": ["triton.language.math", "exp"]}),
    (NAMES[1], "unit functions 1 uses helper", {"function": 1}),
    ("settings are told", "unit functions 0 settings do_not_specialize", ["n"]),
    ("defaults are told", "unit functions 0 defaults", {"BLOCK": 16}),
    ("constants are marked", "unit functions 0 marks", {"BLOCK": "constexpr"}),
    ("a function under constexpr is told as one of constants", "plain 0 uses widest", {"constexpr": {"function": 1}}),
    ("a function under constexpr is told as one of constants", "plain 1 name", "widest"),
    ("a function under constexpr is told as one of constants", "plain 1 is_constant", True),
    ("a table of addresses leads to tensors there and back", "tables", [None, True, True, True]),
    ("other whole numbers lead nowhere", "no_table", 2),
    ("what no compiler could be given is told so", "careless", ["absent"]),
    ("a kernel that wraps another function is refused", "wrapped", "kernel careless wraps another function"),
    ("a kernel sees the names of the function around it", "closures", [1, {"float": "2.5"}]),
    ("numbers that compile alike share a digest", "other_int", [True, False, False, False]),
    ("constants share a digest where they are equal", "constant", [True, False]),
    ("an unaligned tensor needs another kernel", "unaligned", True),
    ("a global that changes makes another kernel", "redefined", [True, False, True]),
    ("a launch is executed elsewhere", "launch asked", [[[2, 1, 1], ["n", "pair", "x"], 1, False, None]]),
    ("a launch is recorded", "launch events", [["kernel", [2, 1, 1], 8, False]]),
    ("grids are sizes or a function of arguments", "grids", [[3, 1, 1], [1, 2, 3], [4, 5, 1], [5, 1, 1]]),
    ("an empty grid is no kernel on the device", "empty events", []),
    ("a launch that did not end raises", "failed raised", "NotRun: out of bounds"),
    ("a launch that did not end is recorded as failed", "failed events", [["kernel", [2, 1, 1], 0, True]]),
    ("a kernel that is only compiled does nothing", "warmup", {"events": [], "raised": None, "asked": []}),
    ("an autotuner tries each configuration once", "tuned", [[16, True], [32, True], [16, False]]),
    ("tries of an autotuner are not recorded", "tuned_events", 1),
    ("no file of Triton's cache chooses a configuration", "tuned_by_files", [True, True, True]),
    ("an ablation of all launches asks for none", "all_left_out asked", []),
    ("an ablation of all launches records none", "all_left_out events", []),
    ("an ablation names the stores that happen", "kept", [["moves"], ["moves"]]),
    ("an ablation of one launch leaves the others whole", "one_left_out", [None]),
]  # fmt: skip
"""What is shown, where it stands among the cases, and what stands there."""


@pytest.mark.parametrize(("fact", "place", "expected"), FACTS)
def test_the_cases_show_it(cases, fact, place, expected):
    assert reduce(lambda found, key: found[int(key) if key.isdigit() else key], place.split(), cases) == expected


def test_only_what_it_uses_comes_with_a_kernel(cases):
    assert len(cases["unit"]["functions"]) == 3
    assert not {"len", "str"} & cases["unit"]["functions"][0]["uses"].keys(), "builtins are left to the compiler"


def test_an_empty_grid_is_asked_for_all_the_same(cases):
    assert len(cases["empty"]["asked"]) == 1


@pytest.mark.parametrize("case, words", [("no_grid", "to three"), ("odd_grid", "integers"), ("cheat", "triton.jit")])
def test_what_is_no_launch_is_refused_with_the_reason(cases, case, words):
    assert words in cases[case]
