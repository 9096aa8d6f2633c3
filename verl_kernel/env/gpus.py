# SPDX-License-Identifier: Apache-2.0
"""The GPUs that can be simulated, with numbers from their data sheets, and variants with figures of one's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal


@dataclass(frozen=True)
class Gpu:
    """Peaks and sizes of a GPU."""

    name: str
    sms: int
    """Number of streaming multiprocessors."""
    clock_ghz: float
    bandwidth_gbs: float
    """Bandwidth of device memory in 1e9 bytes per second."""
    l2_mb: float
    """Size of the L2 cache in 1024**2 bytes."""
    l2_gbs: float
    """Bandwidth of L2 in 1e9 bytes per second."""
    tflops: float
    """Peak of float32 without tensor cores in 1e12 operations per second."""
    tf32_tflops: float
    """Peak of dense products of float32 operands rounded to TF32, on tensor cores."""
    half_tflops: float
    """Peak of dense products of 16-bit operands on tensor cores."""
    shared_kb: int
    """Shared memory of one SM in 1024 bytes."""
    is_calibrated: bool
    """Whether published times vouch for times of this GPU (docs/notes/clock.md)."""
    warps_per_sm: int = 64
    blocks_per_sm: int = 32
    lanes_per_sm: int = 128
    """Threads for which one SM issues an instruction in a cycle."""
    targets: str = "sm_"
    """How the names of its maker's targets begin (`kernelgym.compile_for`)."""

    @property
    def timing_source(self) -> str:
        """Name of the clock that simulates it, in results."""
        return "simulated" if self.is_calibrated else "simulated_unvalidated"

    @property
    def lane_rate(self) -> float:
        """Number of single-thread instructions per second."""
        return self.sms * self.lanes_per_sm * self.clock_ghz * 1e9


_CDNA: Mapping[str, Any] = {"warps_per_sm": 32, "blocks_per_sm": 16, "lanes_per_sm": 64, "targets": "gfx"}
# NVIDIA H100 data sheet and Hopper white paper; rate of L2: published micro-benchmarks, 5.5 to 7 TB/s.
_H100 = Gpu(
    "NVIDIA H100 SXM5 80GB",
    sms=132,
    clock_ghz=1.755,
    bandwidth_gbs=3350.0,
    l2_mb=50.0,
    l2_gbs=5500.0,
    tflops=67.0,
    tf32_tflops=494.7,
    half_tflops=989.4,
    shared_kb=228,
    is_calibrated=True,
)
# NVIDIA A100 data sheet and Ampere architecture white paper.
_A100 = Gpu(
    "NVIDIA A100 SXM4 80GB",
    sms=108,
    clock_ghz=1.41,
    bandwidth_gbs=2039.0,
    l2_mb=40.0,
    l2_gbs=3900.0,
    tflops=19.5,
    tf32_tflops=156.0,
    half_tflops=312.0,
    shared_kb=164,
    is_calibrated=False,
    lanes_per_sm=64,
)
GPUS: Mapping[str, Gpu] = {
    "h100": _H100,
    "h100_sxm": _H100,
    # The same data sheet; its memory is HBM2e.
    "h100_pcie": replace(
        _H100,
        name="NVIDIA H100 PCIe 80GB",
        sms=114,
        bandwidth_gbs=2039.0,
        tflops=51.2,
        tf32_tflops=378.0,
        half_tflops=756.0,
        is_calibrated=False,
    ),
    "h100_nvl": replace(
        _H100,
        name="NVIDIA H100 NVL 94GB",
        bandwidth_gbs=3938.0,
        tflops=60.0,
        tf32_tflops=417.5,
        half_tflops=835.5,
        is_calibrated=False,
    ),
    # NVIDIA H200 data sheet: the H100's processor with faster memory.
    "h200": replace(_H100, name="NVIDIA H200 SXM 141GB", bandwidth_gbs=4800.0, is_calibrated=False),
    "a100": _A100,
    "a100_80": _A100,
    "a100_40": replace(_A100, name="NVIDIA A100 SXM4 40GB", bandwidth_gbs=1555.0),
    # AMD Instinct MI300X data sheet and CDNA 3 white paper. A compute unit counts as an SM, a wave as a warp, and the
    # Infinity Cache, the last one before the memory, as L2.
    "mi300x": Gpu(
        "AMD Instinct MI300X",
        sms=304,
        clock_ghz=2.1,
        bandwidth_gbs=5325.0,
        l2_mb=256.0,
        l2_gbs=17200.0,
        tflops=163.4,
        tf32_tflops=653.7,
        half_tflops=1307.4,
        shared_kb=64,
        is_calibrated=False,
        **_CDNA,
    ),
    # AMD Instinct MI355X data sheet and CDNA 4 white paper; it has no TF32. Rate of the cache: assumed as before.
    "mi355x": Gpu(
        "AMD Instinct MI355X",
        sms=256,
        clock_ghz=2.4,
        bandwidth_gbs=8000.0,
        l2_mb=256.0,
        l2_gbs=17200.0,
        tflops=157.3,
        tf32_tflops=157.3,
        half_tflops=2516.6,
        shared_kb=160,
        is_calibrated=False,
        **_CDNA,
    ),
}
"""GPUs by the name in `kernelgym.gpu_profile`; `h100` and `a100` are the SXM modules with 80 GB."""
GpuName = Literal["h100", "h100_sxm", "h100_pcie", "h100_nvl", "h200", "a100", "a100_80", "a100_40", "mi300x", "mi355x"]
OWN_FIGURES = "h100_sxm+2447GB/s+114SMs+1.62GHz"
"""Example of a GPU with figures of one's own, as `gpu_named` reads them."""
_FIGURE = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>GB/s|TB/s|SMs|GHz)")
_LIMITS = {"GB/s": (50.0, 20000.0), "SMs": (1.0, 1024.0), "GHz": (0.1, 10.0)}
"""Between what a GPU's figures lie: what is beyond is a slip of the unit."""


def gpu_named(profile: str) -> Gpu:
    """Return the GPU that a profile names, with the figures that follow its name.

    `h100_pcie+1900GB/s` has a bandwidth of its own, `+114SMs` a number of multiprocessors, `+1.62GHz` a clock; the
    peaks of arithmetic are those of as many multiprocessors at that clock. Nobody has compared such a GPU's times.

    Raises:
        ValueError: the name, a figure or its unit is not known, or no GPU has such a figure.
    """
    name, *figures = profile.split("+")
    if name not in GPUS:
        raise ValueError(f"it must be one of {', '.join(GPUS)}, or one of them with figures, as {OWN_FIGURES}")
    gpu, own_figures = GPUS[name], dict(map(_figure, figures))
    if len(own_figures) < len(figures):
        raise ValueError("it has two figures of one unit: give each once")
    sms, clock_ghz = int(own_figures.get("SMs", gpu.sms)), own_figures.get("GHz", gpu.clock_ghz)
    share = sms * clock_ghz / (gpu.sms * gpu.clock_ghz)
    return replace(
        gpu,
        sms=sms,
        clock_ghz=clock_ghz,
        bandwidth_gbs=own_figures.get("GB/s", gpu.bandwidth_gbs),
        tflops=gpu.tflops * share,
        tf32_tflops=gpu.tf32_tflops * share,
        half_tflops=gpu.half_tflops * share,
        is_calibrated=gpu.is_calibrated and not own_figures,
    )


def _figure(text: str) -> tuple[str, float]:
    """Return the unit of a figure and its number in that unit; TB/s become GB/s."""
    match = _FIGURE.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is no figure of a GPU: write a number with GB/s, TB/s, SMs or GHz, as {OWN_FIGURES}"
        )
    unit, number = match["unit"], float(match["number"])
    if unit == "TB/s":
        unit, number = "GB/s", 1e3 * number
    low, high = _LIMITS[unit]
    if not low <= number <= high or (unit == "SMs" and number != int(number)):
        raise ValueError(f"{text!r} is no figure of a GPU: {unit} lie between {low:g} and {high:g}")
    return unit, number
