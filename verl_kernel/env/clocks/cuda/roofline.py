# SPDX-License-Identifier: Apache-2.0
"""The shortest time a forward can take on a GPU: what it must move through device memory, at peak bandwidth.

A bound that is too high would accuse honest programs, so everything is rounded down. Of each input or weight a quarter
of the largest part counts that a single op of the reference reads (triangles and strides may be skipped); gathered
tensors do not count at all. Of the outputs that part counts which does not fit into the L2 cache. The roofline that
scores use accuses nobody: it counts all of that part, and the products where the GPU's peak is known.
"""

from __future__ import annotations

from verl_kernel.env.machine.gpu import GPUS
from verl_kernel.env.machine.roofline import Demand, flop_rates

_READ_SHARE = 0.25
# Data sheets, GB/s of device memory; the longest name found in the device's name wins.
PEAK_GBS = {
    "H200": 4800.0,
    "H100": 3350.0,
    "H100 PCIe": 2039.0,  # the data sheet of the 80 GB card says 2 TB/s
    "H100 NVL": 3938.0,
    "GH200": 4900.0,
    "H800": 3350.0,
    "H20": 4000.0,
    "A100": 2039.0,
    "A100-SXM4-40GB": 1555.0,
    "A100-PCIE-40GB": 1555.0,
    "A100 80GB PCIe": 1935.0,
    "A800": 2039.0,
    "A10": 600.0,
    "A30": 933.0,
    "A40": 696.0,
    "A6000": 768.0,
    "B200": 8000.0,
    "B300": 8000.0,
    "GB200": 8000.0,
    "L4": 300.0,
    "L40": 864.0,
    "L40S": 864.0,
    "RTX 3090": 936.2,
    "RTX 4090": 1008.0,
    "RTX 5090": 1792.0,
    "T4": 320.0,
    "V100": 900.0,
}


def peak_gbs(name: str, memory_clock_khz: int = 0, bus_bits: int = 0) -> float | None:
    """Peak device-memory bandwidth in GB/s: the larger of the data sheet's and the one the driver's clock gives.

    None where neither is known.
    """
    words = f" {name} "
    known = [key for key in PEAK_GBS if any(f" {key}{end}" in words for end in (" ", "-"))]
    sheet = PEAK_GBS[max(known, key=len)] if known else 0.0
    return max(sheet, 2 * memory_clock_khz * bus_bits / 8e6) or None


def floor_ms(read: int, written: int, peak: float | None, l2_bytes: int = 0) -> float:
    """Milliseconds below which nobody can have done the work; 0 where the peak is unknown."""
    return (_READ_SHARE * read + max(0, written - l2_bytes)) / (peak * 1e6) if peak else 0.0


_COMPUTE = {"H100": "h100", "H200": "h100", "GH200": "h100", "H800": "h100", "A100": "a100", "A800": "a100"}
"""GPUs by words of their names; slower variants have the peaks of the fastest."""


def measured_roofline_ms(demand: Demand, name: str, peak: float | None, l2_bytes: int, tf32: bool) -> float | None:
    """Milliseconds that a forward with cold inputs takes at the peaks of a GPU; None where its bandwidth is unknown.

    Args:
        demand: what the reference reads, writes and multiplies.
        name: of the GPU, as the driver says it.
        peak: device-memory bandwidth in GB/s.
        l2_bytes: of results, what may stay in the cache.
        tf32: whether products of float32 may round their operands.
    """
    if not peak:
        return None
    moved_s = (demand.read + max(0, demand.written - l2_bytes)) / (peak * 1e9)
    words = name.replace("-", " ").split()
    known = next((GPUS[gpu] for word, gpu in _COMPUTE.items() if word in words), None)
    single, half = (0.0, 0.0) if known is None else flop_rates(known, tf32)
    product_s = demand.flops / single + demand.half_flops / half if known else 0.0
    return 1e3 * max(moved_s, product_s) or None
