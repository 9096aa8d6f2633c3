# SPDX-License-Identifier: Apache-2.0
"""Coverage from device kernels: whose they are, and names that prove nothing."""

import pytest

from verl_kernel.env.clocks.cuda.clock import load_kernels, profile_kernels
from verl_kernel.env.trace import TraceEvent

OWN = "/scratch/kernel.py"


def launch(name, source=OWN, **fields):
    return TraceEvent("launch", name, (4, 1, 1), source=source, **fields)


GEMM, MM = "sm90_xmma_gemm_f32f32", TraceEvent("op", "aten::mm")
MIXED = {"fused": (2, 3.0), GEMM: (1, 6.0), "Memset (Device)": (1, 1.0)}


def test_mixed_program():
    events = [launch("fused"), launch("fused"), MM]
    profile = profile_kernels(MIXED, events, OWN)
    assert profile.time_coverage == pytest.approx(0.3)
    assert profile.number_coverage == pytest.approx(0.5)
    assert (profile.num_custom_kernels, profile.num_total_kernels) == (2, 4)
    assert profile.fallback_ops == {"aten::mm": 1}
    assert profile.launches[0].count == 2
    assert profile.top_kernels[0] == (GEMM, 6.0)


THREE = {"a": (1, 1.0), "b": (1, 1.0), "c": (1, 2.0)}


@pytest.mark.parametrize(("kernels", "events", "coverage"), [
    ({GEMM: (2, 6.01)}, [launch(GEMM), MM], 0.0),  # one of the library, one empty of that name
    (THREE, [launch("a", source=""), launch("b", failed=True), launch("c")], 0.5),
    ({GEMM: (1, 1.0)}, [launch("ghost"), MM], 0.0),  # no device saw it
    ({}, [], 0.0),
])  # fmt: skip
def test_what_is_not_own_covers_nothing(kernels, events, coverage):
    assert profile_kernels(kernels, events, OWN).time_coverage == pytest.approx(coverage)


def test_a_launch_that_no_device_saw_counts_as_none():
    assert profile_kernels({GEMM: (1, 1.0)}, [launch("ghost"), MM], OWN).number_coverage == 0.0
    assert profile_kernels({}, [launch("fused")], OWN) is None  # a blind profiler


@pytest.mark.parametrize("kernel", [[0, 1.0], [1, -1.0], [1, float("nan")], [True, 1.0], [1], [1, "2"]])
def test_what_is_no_list_of_kernels_is_refused(kernel):
    assert load_kernels({"k": [2, 1]}) == {"k": (2, 1.0)}
    for value in ({"k": kernel}, []):
        with pytest.raises(ValueError):
            load_kernels(value)
