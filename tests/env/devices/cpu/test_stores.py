# SPDX-License-Identifier: Apache-2.0
"""What the interpreter device finds stores to be, what an ablation leaves out, how tuning chooses."""

from pathlib import Path

import pytest

from tests.env.devices.cases import run_cases
from verl_kernel.env.backends import resolve_device
from verl_kernel.env.machine.constants import constant

CASES = Path(__file__).with_name("stores_cases.py")


@pytest.fixture(scope="module")
def cases():
    return run_cases(CASES, resolve_device("cpu").zygote_env())


@pytest.mark.parametrize(
    ("kernel", "wanted"),
    [
        ("copy", [0, 0, 0]),
        ("relu", [0, 1, 1]),  # of numbers above 0 it is a copy; what has computed once goes on
        ("zero", [1, 0, 0]),  # the same on other inputs: a constant
        ("one program", [1 / 16, 1 / 16, 1 / 16]),
        ("filled", [0, 0, 0]),
        ("larger", [1, 1, 1]),
        ("picked", [0, 0, 0]),
        ("added to zeros", [0, 0, 0]),
        ("added up", [1, 1, 1]),
        ("counted", [1, 1, 1]),
        ("both", [1 / 2, 1 / 2, 1 / 2]),
    ],
)
def test_what_stores_are(cases, kernel, wanted):
    assert cases["shares"][kernel] == wanted


def test_an_ablation_leaves_out_kinds_of_stores(cases):
    """The outputs of a move and of a computation in one launch, and of a constant in another."""
    assert cases["ablation"] == {
        "everything": [False, False, False],
        "computed": [True, False, True],
        "moved too": [False, False, True],
        "second launch": [True, True, False],
        "first, computed": [True, False, True],
        "afterwards": [True, True, True],
    }


@pytest.mark.parametrize("name", ["worst first", "best first", "asserted", "hooked"])
def test_the_best_configuration_is_chosen_wherever_it_stands(cases, name):
    seen = cases["tuning"][name]
    assert seen["grid"] == [16, 1, 1] and seen["launches"] == 1 and seen["same"]


def test_configurations_that_are_tried_write_nothing(cases):
    for name, seen in cases["tuning"].items():
        if isinstance(seen, dict):
            assert seen["exact"] and seen["written"] == seen["grid"][0], name
    assert cases["restored"] is True


def test_a_program_prunes_by_itself(cases):
    assert cases["tuning"]["pruned"]["grid"] == [4, 1, 1] and cases["tuning"]["pruned"]["timings"] == 2
    assert cases["tuning"]["modelled"]["grid"] == [4, 1, 1] and cases["tuning"]["modelled"]["timings"] == 2


def test_no_more_than_64_configurations_are_tried(cases):
    assert cases["tuning"]["many"]["grid"] == [1, 1, 1]


def test_hooks_run_for_every_configuration_and_every_launch(cases):
    assert cases["tuning"]["hook calls"] == 2 + 2


def test_a_launch_inside_the_benchmark_function_leaves_nothing_but_a_time(cases):
    seen = cases["by_hand"]
    assert seen["events"] == [] and seen["untouched"]
    assert seen["ms"] > constant("launch_us") / 1e3
