# SPDX-License-Identifier: Apache-2.0
"""Coverage from device kernels: whose they are, and names that prove nothing."""

import pytest

from verl_kernel.env.clocks.cuda.clock import load_kernels, profile_kernels
from verl_kernel.env.trace import TraceEvent

OWN = "/scratch/kernel.py"


def launch(name, source=OWN, **fields):
    return TraceEvent("launch", name, (4, 1, 1), source=source, **fields)


GEMM = "sm90_xmma_gemm_f32f32"
MIXED = {"fused": (2, 3.0), GEMM: (1, 6.0), "Memset (Device)": (1, 1.0)}


def test_mixed_program():
    events = [launch("fused"), launch("fused"), TraceEvent("op", "aten::mm")]
    profile = profile_kernels(MIXED, events, OWN)
    assert profile.time_coverage == pytest.approx(0.3)
    assert profile.number_coverage == pytest.approx(0.5)
    assert (profile.num_custom_kernels, profile.num_total_kernels) == (2, 4)
    assert profile.fallback_ops == {"aten::mm": 1}
    assert profile.launches[0].count == 2
    assert profile.top_kernels[0] == (GEMM, 6.0)


def test_a_kernel_named_like_a_library_kernel_covers_nothing():
    kernels = {GEMM: (2, 6.01)}  # one of the library, one empty of that name
    assert profile_kernels(kernels, [launch(GEMM), TraceEvent("op", "aten::mm")], OWN).time_coverage == 0.0


def test_kernels_of_other_files_and_failed_launches_are_not_own():
    kernels = {"a": (1, 1.0), "b": (1, 1.0), "c": (1, 2.0)}
    events = [launch("a", source=""), launch("b", failed=True), launch("c")]
    assert profile_kernels(kernels, events, OWN).time_coverage == pytest.approx(0.5)


def test_a_launch_that_no_device_saw_covers_nothing():
    profile = profile_kernels({GEMM: (1, 1.0)}, [launch("ghost"), TraceEvent("op", "aten::mm")], OWN)
    assert profile.time_coverage == profile.number_coverage == 0.0


def test_a_blind_profiler_is_unknown():
    assert profile_kernels({}, [launch("fused")], OWN) is None
    assert profile_kernels({}, [], OWN).time_coverage == 0.0


@pytest.mark.parametrize(
    "value",
    [[], {"k": [0, 1.0]}, {"k": [1, -1.0]}, {"k": [1, float("nan")]}, {"k": [True, 1.0]}, {"k": [1]}, {"k": [1, "2"]}],
)
def test_what_is_no_list_of_kernels_is_refused(value):
    with pytest.raises(ValueError):
        load_kernels(value)


def test_kernels_are_read():
    assert load_kernels({"k": [2, 1]}) == {"k": (2, 1.0)}
