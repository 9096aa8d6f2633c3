# SPDX-License-Identifier: Apache-2.0
"""The simulated clock beside an H100: ten programs, predicted in a process without a GPU and measured in this one."""

import json
import statistics

import pytest
import torch

from tests.env.processes import printed
from verl_kernel.env.devices.cuda.stopwatch import Stopwatch

from . import predicted_programs

FACTOR, TRIALS = 2.0, 20
NAMES = (
    "torch add", "torch sum", "torch softmax", "torch product", "torch convolution", "add", "softmax", "one program",
    "half product", "sum of columns",
)  # fmt: skip


@pytest.fixture(scope="module")
def predicted():
    return json.loads(printed(predicted_programs.__file__, CUDA_VISIBLE_DEVICES=""))


@pytest.fixture(scope="module")
def measured():
    if "H100" not in torch.cuda.get_device_name():
        pytest.skip("the model is calibrated for an H100 only")
    stopwatch, found = Stopwatch(), {}
    with torch.no_grad():
        for name, run in predicted_programs.programs("cuda").items():
            run()
            found[name] = statistics.median(stopwatch.device(run)[1] for _ in range(TRIALS))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_prediction_is_within_a_factor_of_the_measurement(predicted, measured, name):
    assert measured[name] / FACTOR < predicted[name] < measured[name] * FACTOR


def test_all_programs_are_compared(predicted):
    assert sorted(predicted) == sorted(NAMES)
