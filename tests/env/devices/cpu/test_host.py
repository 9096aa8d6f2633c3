# SPDX-License-Identifier: Apache-2.0
"""What host code sees where `cuda` means the CPU; the cases are in host_cases.py."""

import json
from pathlib import Path

import pytest

from tests.env.processes import printed
from verl_kernel.env.backends import resolve_device
from verl_kernel.errors import ConfigError, EnvironmentNotReady


@pytest.fixture(scope="module")
def cases():
    return json.loads(printed(Path(__file__).with_name("host_cases.py"), **resolve_device("cpu").zygote_env()))


@pytest.mark.slow
def test_cuda_means_the_cpu(cases):
    case = cases["cuda_names"]
    assert case.pop("processors") > 0
    assert case == {
        "shown": ["cuda:0", True, True, 0], "same": True, "capability": [9, 0], "active": "cuda:0",
        "numpy": [4.0, 4.0, 4.0, 0.0, 0.0],  # numpy() works on CPU tensors only
    }  # fmt: skip


def test_do_bench_gives_as_many_times_as_it_was_asked_for(cases):
    assert min(map(len, cases["bench"])) >= 1


def test_composite_ops_are_counted_by_their_parts_in_every_mode(cases):
    case = cases["inference_mode"]
    assert case["no_grad"] == case["inference_mode"]
    assert [event["name"] for event in case["no_grad"]] == ["aten::addmm", "aten::_softmax"]


def test_devices_that_cannot_be_had_are_refused_in_one_sentence():
    with pytest.raises(EnvironmentNotReady, match="device cuda"):
        resolve_device("cuda")
    with pytest.raises(ConfigError, match="auto, cpu, cuda"):
        resolve_device("tpu")
    assert resolve_device("auto").timing_source == "simulated"


@pytest.mark.slow
def test_libraries_keep_seeing_the_truth():
    printed(
        "-c",
        "import torch; from torch import random; truth = torch.cuda.is_available()\n"
        "from verl_kernel.env.backends import resolve_device; resolve_device('cpu').setup()\n"
        "x = torch.ones(2, device='cuda')\n"
        "assert torch.cuda.is_available() and x.is_cuda\n"
        "exec(compile('seen = (torch.cuda.is_available(), x.is_cuda)', random.__file__, 'exec'))\n"
        "assert seen == (truth, False), seen",
    )
