# SPDX-License-Identifier: Apache-2.0
"""Launches where kernels run compiled: what is described, asked of the executing process, and recorded."""

from pathlib import Path

import pytest

from tests.env.devices.cases import run_cases
from verl_kernel.env.devices import CPU_VARIABLES


@pytest.fixture(scope="module")
def cases():
    return run_cases(Path(__file__).with_name("launch_cases.py"), CPU_VARIABLES)


@pytest.mark.slow
def test_a_launch_is_told_as_the_compiler_distinguishes_it(cases):
    launch = cases["unit"]["launch"]
    tensor = {"tensor": {"dtype": "float32", "aligned": True}}
    pair = {"tuple": {"name": "Pair", "fields": ["left", "right"], "values": [3 - 2, {"float": "0.5"}]}}
    assert launch == {"function": 0, "positional": [tensor, 3, pair], "named": {}, "options": {"num_warps": 8}}


def test_a_kernel_comes_with_the_functions_that_it_calls(cases):
    assert [item["name"] for item in cases["unit"]["functions"]] == ["kernel", "helper", "rounded"]


@pytest.mark.parametrize(
    ("number", "name", "told"),
    [
        (0, "KIND", {"dtype": "fp16"}),
        (0, "tl", {"module": "triton.language"}),
        (0, "libdevice", {"module": "triton.language.extra.libdevice"}),
        (0, "helper", {"function": 1}),
        (0, "rounded", {"function": 2}),
        (1, "SCALE", {"constexpr": 3}),
        (1, "exp", {"member": ["triton.language.math", "exp"]}),
        (1, "helper", {"function": 1}),
    ],
)
def test_names_stand_for_what_they_stood_for_at_the_launch(cases, number, name, told):
    assert cases["unit"]["functions"][number]["uses"][name] == told


def test_builtins_are_left_to_the_compiler(cases):
    assert not {"len", "str"} & cases["unit"]["functions"][0]["uses"].keys()


def test_settings_and_defaults_are_told(cases):
    kernel = cases["unit"]["functions"][0]
    assert (kernel["settings"]["do_not_specialize"], kernel["defaults"]) == (["n"], {"BLOCK": 16})
    assert kernel["marks"] == {"BLOCK": "constexpr"}


def test_a_function_under_constexpr_is_told_as_one_of_constants(cases):
    kernel, function = cases["plain"]
    assert kernel["uses"]["widest"] == {"constexpr": {"function": 1}}
    assert (function["name"], function["is_constant"]) == ("widest", True)


def test_a_table_of_addresses_leads_to_tensors_there_and_back(cases):
    assert cases["tables"] == [None, True, True, True]
    assert cases["no_table"] == 2


def test_what_no_compiler_could_be_given_is_told_so(cases):
    assert cases["careless"]["functions"][0]["uses"]["OTHER"].keys() == {"absent"}


def test_a_kernel_sees_the_names_of_the_function_around_it(cases):
    assert [uses["OTHER"] for uses in cases["closures"]] == [1, {"float": "2.5"}]


def test_launches_that_compile_alike_share_a_digest(cases):
    assert (cases["other_int"], cases["constant"]) == ([True, False, False, False], [True, False])


def test_an_unaligned_tensor_needs_another_kernel(cases):
    assert cases["unaligned"]


def test_a_global_that_changes_makes_another_kernel(cases):
    first, second, third = cases["redefined"]
    assert first != second
    assert first == third


def test_a_launch_is_executed_elsewhere_and_recorded(cases):
    assert cases["launch"]["asked"] == [[[2, 1, 1], ["n", "pair", "x"], 1, False, None]]
    assert cases["launch"]["events"] == [["kernel", [2, 1, 1], 8, False]]


def test_grids_are_sizes_or_a_function_of_arguments(cases):
    assert cases["grids"] == [[3, 1, 1], [1, 2, 3], [4, 5, 1], [5, 1, 1]]
    assert ["one to three" in cases["bad_grid"][0], "integers" in cases["bad_grid"][1]] == [True, True]


def test_an_empty_grid_is_no_kernel_on_the_device(cases):
    assert (cases["empty"]["events"], len(cases["empty"]["asked"])) == ([], 1)


def test_a_launch_that_did_not_end_is_recorded_as_failed(cases):
    assert cases["failed"]["raised"] == "NotRun: out of bounds"
    assert cases["failed"]["events"] == [["kernel", [2, 1, 1], 0, True]]


def test_a_kernel_that_is_only_compiled_does_nothing(cases):
    assert (cases["warmup"]["events"], cases["warmup"]["asked"], cases["warmup"]["raised"]) == ([], [], None)


def test_an_autotuner_tries_each_configuration_once(cases):
    assert [(grid[0], is_tried) for grid, _, _, is_tried, _ in cases["tuned"]["asked"]] == [
        (16, True), (32, True), (16, False),
    ]  # fmt: skip
    assert len(cases["tuned"]["events"]) == 1


def test_no_file_of_tritons_cache_chooses_a_configuration(cases):
    assert [run["asked"] for run in cases["tuned_by_files"]] == [cases["tuned"]["asked"]] * 2


def test_an_ablation_of_all_launches_asks_for_none(cases):
    assert (cases["all_left_out"]["asked"], cases["all_left_out"]["events"]) == ([], [])


def test_an_ablation_names_the_stores_that_happen(cases):
    assert [kept for *_, kept in cases["kept"]] == [["moves"], ["moves"]]


def test_an_ablation_of_one_launch_leaves_the_others_whole(cases):
    assert [kept for *_, kept in cases["one_left_out"]] == [None]


def test_only_kernels_of_triton_jit_can_be_launched(cases):
    assert "triton.jit" in cases["cheat"]
