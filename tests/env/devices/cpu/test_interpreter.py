# SPDX-License-Identifier: Apache-2.0
"""What the interpreter device runs, counts and refuses; the kernels are in interpreted_cases.py."""

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.env.devices.cases import ROOT, run_cases
from verl_kernel.env.backends import resolve_device
from verl_kernel.errors import ConfigError, EnvironmentNotReady

CASES = Path(__file__).with_name("interpreted_cases.py")


@pytest.fixture(scope="module")
def cases():
    return run_cases(CASES, resolve_device("cpu").zygote_env())


def only(record):
    assert record["error"] is None, record["error"]
    (event,) = record["events"]
    return event


def test_masked_lanes_move_nothing(cases):
    case = cases["masked_add"]
    event = only(case)
    assert case["exact"] and case["beyond"] == 7.0
    assert (event["kind"], event["name"], event["grid"]) == ("launch", "add", [8, 1, 1])
    assert event["bytes"] == 3 * 4 * 1000 and event["flops"] == 8 * 128
    assert event["source"] == str(CASES) and not event["failed"]


def test_lanes_that_share_an_address_move_it_once(cases):
    assert cases["same_address"]["events"][-1]["bytes"] == 3 * (4 + 16 * 4)


def test_atomics_read_and_write(cases):
    assert cases["atomic"]["values"] == [2.0] * 5 + [0.0] * 3
    assert cases["atomic"]["events"][-1]["bytes"] == 2 * (8 * 4 + 2 * 5 * 4)


def test_dot_counts_its_products(cases):
    case = cases["dot"]
    assert case["off_by"] < 1e-4
    assert case["single"]["flops"] == 2 * 16**3 and case["single"]["half_flops"] == 0
    assert case["half"]["flops"] == case["half"]["half_flops"] == 2 * 16**3
    assert case["half"]["bytes"] == (2 + 2 + 4) * 16**2


def test_softmax(cases):
    assert cases["softmax"]["off_by"] < 1e-6
    assert only(cases["softmax"])["bytes"] == 2 * 4 * 100 * 4


def test_autotuning_launches_nothing_but_the_chosen_configuration(cases):
    case = cases["autotune"]
    assert case["exact"]
    assert only(case["first"]) == only(case["again"])
    assert only(case["first"])["grid"] == [2, 1, 1]  # the first configuration


def test_what_triton_refuses_is_a_compile_error(cases):
    refusals = cases["refusals"]
    assert len(refusals) == 9
    for name, case in refusals.items():
        assert case["error"]["compile"], name
        assert all(event["failed"] for event in case["events"])
    assert refusals["undefined"]["error"]["text"].endswith("in kernel undefined: name 'math' is not defined")
    assert "tanhh" in refusals["missing_function"]["error"]["text"]
    assert "libdevice.j0" in refusals["bessel"]["error"]["text"]


def test_a_refusal_names_the_line_of_the_file(cases):
    text = cases["refusals"]["foreign"]["error"]["text"]
    line = 1 + CASES.read_text().splitlines().index("    tl.store(x, torch.sum(x))")
    assert text.startswith(f"line {line}, in kernel foreign: torch.sum is not part of triton.language")


def test_what_fails_for_some_values_only_is_no_compile_error(cases):
    fine, failed = cases["values"]["asserted"]
    assert fine["error"] is None
    assert failed["error"]["type"] == "AssertionError" and not failed["error"]["compile"]


def test_floating_arguments_are_float32_scalars_as_on_a_gpu(cases):
    tenth = float(np.float32(0.1))
    assert cases["floats"] == [math.inf, 0.0, 1.0, 1 / np.float32(0.1), float(np.float16(tenth)), 1.0]


def test_host_errors_are_not_compile_errors(cases):
    for name, case in cases["host_errors"].items():
        assert case["error"] and not case["error"]["compile"], name


def test_a_kernel_works_after_one_that_failed(cases):
    assert cases["recovers"] == [2.0] * 16


def test_suppressed_launches_leave_no_trace(cases):
    assert cases["suppressed"]["values"] == [1.0] * 16
    assert [event["name"] for event in cases["suppressed"]["events"]] == ["aten::add_.Tensor"]


def test_an_empty_grid_is_no_launch(cases):
    assert cases["empty_grid"] == {"events": [], "error": None}


def test_torch_ops_hidden_in_a_grid_are_counted(cases):
    names = [event["name"] for event in cases["work_in_grid"]["events"]]
    assert "aten::_softmax" in names and names[-1] == "add"


def test_a_launch_names_the_file_of_its_kernel(cases):
    assert cases["elsewhere"]["error"] is None
    assert Path(cases["elsewhere"]["events"][-1]["source"]).name == "foreign_kernel.py"


def test_libdevice_agrees_with_torch(cases):
    assert max(cases["libdevice"].values()) < 2e-6, cases["libdevice"]


def test_cuda_means_the_cpu(cases):
    case = cases["cuda_names"]
    assert case["shown"] == ["cuda:0", True, True, 0] and case["same"]
    assert case["numpy"] == [4.0, 4.0, 4.0, 0.0, 0.0]  # numpy() works on CPU tensors only
    assert case["capability"] == [9, 0] and case["processors"] > 0 and case["active"] == "cuda:0"


def test_do_bench_gives_the_milliseconds_of_its_last_calls(cases):
    case = cases["do_bench"]
    assert 1 <= len(case["given"]) < len(case["own"])
    own = case["own"][-len(case["given"]) :]
    assert all(given > mine > 0 for given, mine in zip(case["given"], own, strict=True))
    assert sum(case["given"]) < case["whole"]


def test_composite_ops_are_counted_by_their_parts_in_every_mode(cases):
    case = cases["inference_mode"]
    assert case["no_grad"] == case["inference_mode"]
    assert [event["name"] for event in case["no_grad"]["events"]] == ["aten::addmm", "aten::_softmax"]


def test_devices_that_cannot_be_had_are_refused_in_one_sentence():
    with pytest.raises(EnvironmentNotReady, match="device cuda"):
        resolve_device("cuda")
    with pytest.raises(ConfigError, match="auto, cpu, cuda"):
        resolve_device("tpu")
    assert resolve_device("auto").timing_source == "simulated"


def test_setup_says_so_when_triton_came_too_early():
    code = "import triton, os; os.environ['TRITON_INTERPRET'] = '1'\n"
    code += "from verl_kernel.env.backends import resolve_device; resolve_device('cpu').setup()"
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=ROOT)
    assert "EnvironmentNotReady: triton was imported before TRITON_INTERPRET=1" in done.stderr


def test_libraries_keep_seeing_the_truth():
    code = (
        "import torch; from torch import random; truth = torch.cuda.is_available()\n"
        "from verl_kernel.env.backends import resolve_device; resolve_device('cpu').setup()\n"
        "x = torch.ones(2, device='cuda')\n"
        "assert torch.cuda.is_available() and x.is_cuda\n"
        "exec(compile('seen = (torch.cuda.is_available(), x.is_cuda)', random.__file__, 'exec'))\n"
        "assert seen == (truth, False), seen"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_the_first_launch_needs_no_signature_of_a_built_in():
    """Python 3.10 has none for `print`, which stands in for `tl.static_print` while the interpreter runs a kernel."""
    probe = """
import inspect
signature = inspect.signature
def strict(function, **options):
    if function is print:
        raise ValueError("no signature found for builtin")
    return signature(function, **options)
inspect.signature = strict

import torch
from verl_kernel.env.backends import resolve_device
resolve_device("cpu").setup()
from verl_kernel.env.devices.warmup import WarmUpProgram
print(WarmUpProgram()(torch.randn(16)).shape)
"""
    done = subprocess.run(
        [sys.executable, "-c", probe],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "torch.Size([16])", done.stderr
