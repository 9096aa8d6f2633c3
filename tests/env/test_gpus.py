# SPDX-License-Identifier: Apache-2.0
"""GPUs by name, with figures of one's own, and what no GPU has."""

import pytest

from verl_kernel.env.gpus import GPUS, OWN_FIGURES, gpu_named
from verl_kernel.env.options import GymOptions
from verl_kernel.errors import ConfigError


@pytest.mark.parametrize("name", GPUS)
def test_a_name_alone_is_the_gpu_of_the_data_sheet(name):
    assert gpu_named(name) == GPUS[name]


H100 = gpu_named("h100")


@pytest.mark.parametrize(("name", "figures"), [
    (OWN_FIGURES, {"bandwidth_gbs": 2447.0, "sms": 114, "clock_ghz": 1.62}),
    ("h100+66SMs", {"half_tflops": H100.half_tflops / 2, "tflops": H100.tflops / 2}),
    ("a100+1.2GHz", {"tf32_tflops": 156.0 * 1.2 / 1.41}),
    ("h100+2.447TB/s", {"bandwidth_gbs": 2447.0}),
    ("h100_sxm", {"timing_source": "simulated"}),
    ("h100_sxm+2447GB/s", {"timing_source": "simulated_unvalidated"}),  # no published time vouches for it
])  # fmt: skip
def test_own_figures_replace_those_of_the_data_sheet(name, figures):
    assert GymOptions(gpu_profile=name).gpu_profile == name
    assert {figure: getattr(gpu_named(name), figure) for figure in figures} == pytest.approx(figures)


@pytest.mark.parametrize(("profile", "sentence"), [
    ("h10", "is 'h10'; did you mean h100? it must be one of h100, "),
    ("h100+0GB/s", "'0GB/s' is no figure of a GPU: GB/s lie between 50 and 20000"),
    ("h100+2447000000000GB/s", "'2447000000000GB/s' is no figure of a GPU: GB/s lie between 50 and 20000"),
    ("h100+2447000000000B/s", "write a number with GB/s, TB/s, SMs or GHz, as h100_sxm"),
    ("h100+2447", "write a number with GB/s, TB/s, SMs or GHz"),
    ("h100+-3GHz", "write a number with"),
    ("h100+1620GHz", "GHz lie between 0.1 and 10"),
    ("h100+1.5SMs", "SMs lie between 1 and 1024"),
    ("h100+3TB/s+3000GB/s", "it has two figures of one unit: give each once"),
    ("", "it must be one of h100, "),
])  # fmt: skip
def test_what_is_no_gpu_is_refused_with_a_sentence(profile, sentence):
    with pytest.raises(ConfigError, match="kernelgym.gpu_profile is") as caught:
        GymOptions(gpu_profile=profile)
    assert sentence in str(caught.value)
