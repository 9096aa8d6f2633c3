# SPDX-License-Identifier: Apache-2.0
"""GPUs by name, with figures of one's own, and what no GPU has."""

import pytest

from verl_kernel.env.gpus import GPUS, OWN_FIGURES, gpu_named
from verl_kernel.env.options import GymOptions
from verl_kernel.errors import ConfigError


@pytest.mark.parametrize("name", GPUS)
def test_a_name_alone_is_the_gpu_of_the_data_sheet(name):
    assert gpu_named(name) == GPUS[name]


def test_own_figures_replace_those_of_the_data_sheet():
    gpu = gpu_named(OWN_FIGURES)
    assert (gpu.bandwidth_gbs, gpu.sms, gpu.clock_ghz) == (2447.0, 114, 1.62)


def test_peaks_follow_the_multiprocessors_and_the_clock():
    whole, half = gpu_named("h100"), gpu_named("h100+66SMs")
    assert half.half_tflops == pytest.approx(whole.half_tflops / 2)
    assert half.tflops == pytest.approx(whole.tflops / 2)
    assert gpu_named("a100+1.2GHz").tf32_tflops == pytest.approx(156.0 * 1.2 / 1.41)


def test_a_bandwidth_may_stand_in_terabytes():
    assert gpu_named("h100+2.447TB/s").bandwidth_gbs == pytest.approx(2447.0)


def test_no_published_time_vouches_for_figures_of_ones_own():
    assert gpu_named("h100_sxm").timing_source == "simulated"
    assert gpu_named("h100_sxm+2447GB/s").timing_source == "simulated_unvalidated"


def test_slower_memory_makes_a_gpu_slower():
    assert GymOptions(gpu_profile="h100+1.9TB/s").gpu_profile == "h100+1.9TB/s"
    assert gpu_named("h100+1.9TB/s").bandwidth_gbs < gpu_named("h100").bandwidth_gbs


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
