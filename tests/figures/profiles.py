# SPDX-License-Identifier: Apache-2.0
"""A profile for tests of what is written about one."""

from typing import Any

from verl_kernel.env.result import (
    Change,
    EvalResult,
    EvalStatus,
    ForwardProfile,
    LaunchProfile,
    TensorTraffic,
    Timing,
    WastedSectors,
)

LAUNCH = LaunchProfile(
    name="softmax", grid=(4096, 1, 1), count=2, ms=0.0351, bound="device memory", roofline=0.41, dram_bytes=201_000_000,
    l2_bytes=302_000_000, sms=132, gpu_sms=132, waves=3.88, even_blocks=4096, occupancy=0.48,
    theoretical_occupancy=0.5, limit="registers", registers=168, spills=8, shared=8192, flops=10**7, product_flops=0,
    no_tensor_cores="it has no tl.dot",
    wasted=(WastedSectors(line=14, access="load", tensor="x", sectors=800, needed=100),),
    tensors=(TensorTraffic(name="x", role="input", read=300_000_000, written=0, least=100_000_000),),
)  # fmt: skip
PROFILE = ForwardProfile(
    ms=0.0722, gpu="NVIDIA H100 SXM5 80GB", host_ms=0.01, dram_bytes=201_000_000, least_bytes=134_000_000,
    roofline=0.55,
    launches=tuple(LAUNCH.model_copy(update={"name": name}) for name in ("softmax", "other", "third")),
    changes=(
        Change(kind="once", kernel="softmax", subject="x", line=14, ms=0.0361),
        Change(kind="fuse", kernel="softmax", subject="other", ms=0.06),
    ),
)  # fmt: skip


def profiled(**fields: Any) -> EvalResult:
    known = {"correctness": True, "timing_source": "simulated", "profile": PROFILE, "env": {"gpu_profile": "h100"}}
    return EvalResult(task_id="t", kernel="kernel.py", status=EvalStatus.OK, **(known | fields))


def measured() -> EvalResult:
    timing = Timing(median=0.08, p20=0.08, p80=0.08, mean=0.08, n=9)
    return profiled(timing_source="cuda_event", kernel_ms=timing, top_kernels=(("softmax", 0.076),))
