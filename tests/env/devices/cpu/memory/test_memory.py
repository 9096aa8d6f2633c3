# SPDX-License-Identifier: Apache-2.0
"""The memory checks find every planted fault at its line, and nothing in honest kernels."""

import ast
from pathlib import Path

import pytest

from tests.env.devices.cases import run_cases
from verl_kernel.env.backends import resolve_device
from verl_kernel.env.result import MemoryFinding

HERE = Path(__file__).parent
FILES = ("faults.py", "unwritten.py", "racing.py")


def _functions(file: str) -> list[ast.FunctionDef]:
    return [node for node in ast.parse((HERE / file).read_text()).body if isinstance(node, ast.FunctionDef)]


def _launches() -> dict[str, str]:
    """Kinds of the planted faults by the name of the launch."""
    kinds = {"read": "uninitialised_read", "race": "race"}
    found = {}
    for node in (node for file in FILES for node in _functions(file)):
        mark = ast.unparse(node.decorator_list[-1]) if node.decorator_list else ""
        if mark.startswith("fault(") or mark in kinds:
            found[node.name] = kinds.get(mark) or mark[len("fault('") : -2]
    return found


def _lines(kind: str) -> set[int]:
    """Marked lines of the file that holds the faults of a kind."""
    file = {"uninitialised_read": "unwritten.py", "race": "racing.py"}.get(kind, "faults.py")
    text = (HERE / file).read_text().splitlines()
    return {number for number, line in enumerate(text, 1) if line.endswith("# FAULT")}


FAULTS = _launches()
HONEST = [
    node.name
    for file in ("honest.py", "ordered.py")
    for node in _functions(file)
    if node.decorator_list and ast.unparse(node.decorator_list[0]) == "honest"
]


@pytest.fixture(scope="module")
def cases():
    return run_cases(HERE / "memory_cases.py", resolve_device("cpu").zygote_env())


def test_there_are_enough_faults_of_every_kind():
    kinds = list(FAULTS.values())
    assert min(map(kinds.count, ("out_of_bounds_load", "out_of_bounds_store", "uninitialised_read", "race"))) >= 7
    assert len(kinds) >= 50 and len(HONEST) >= 35


@pytest.mark.parametrize("way", ["whole", "piecewise"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_at_its_line(cases, name, way):
    findings = [MemoryFinding(**{**item, "program": tuple(item["program"])}) for item in cases[way][name]["findings"]]
    first = findings[0]
    assert first.kind == FAULTS[name] and first.line in _lines(first.kind)
    assert first.argument and first.offset is not None and len(first.program) == 3
    assert (first.other_line is not None) is (first.kind == "race")


@pytest.mark.parametrize("name", [name for name, kind in FAULTS.items() if kind.startswith("out_of_bounds")])
def test_an_access_out_of_bounds_does_not_happen(cases, name):
    assert cases["whole"][name]["raised"].startswith("OutOfBounds")


@pytest.mark.parametrize("way", ["whole", "piecewise"])
@pytest.mark.parametrize("name", HONEST)
def test_nothing_is_found_in_honest_kernels(cases, name, way):
    assert cases[way][name]["findings"] == [] and cases[way][name]["raised"] is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sum_by_atomics", [420.0]),
        ("spin_lock", [21.0]),
        ("last_program_sums_up", [528.0]),
        ("flag_polled_by_volatile_loads", [1.0, 2.0, 2.0]),
        ("product_by_compare_and_swap", [81]),
        ("locks_taken_in_turn", [15.0, 15.0]),
        ("order_through_a_third_program", [1.0, 1.0]),
    ],
)
def test_the_checks_change_no_result(cases, name, value):
    assert cases["whole"][name]["result"] == cases["piecewise"][name]["result"] == value


@pytest.mark.parametrize(
    ("name", "argument", "offset"),
    [
        ("tail_without_a_mask", "x", 20),
        ("neighbour_before_the_first", "x", -1),
        ("index_far_away", "x", 2**40),
        ("counted_in_a_bin_that_is_not_there", "o", 4),
        ("added_to_half_a_tensor", "o", 10),
        ("half_of_each_word", "x", 0),
        ("neighbours_in_place", "x", 8),
    ],
)
def test_a_finding_names_an_example(cases, name, argument, offset):
    first = cases["whole"][name]["findings"][0]
    assert (first["argument"], first["offset"]) == (argument, offset)
