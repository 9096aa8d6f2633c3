# SPDX-License-Identifier: Apache-2.0
"""The shortest time a forward can take on a GPU: what it must move through device memory, at peak bandwidth.

A bound that is too high would accuse honest programs, so everything is rounded down. Of each input or weight a quarter
of the largest part counts that a single op of the reference reads (triangles and strides may be skipped); gathered
tensors do not count at all. Of the outputs that part counts which does not fit into the L2 cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from verl_kernel.env.devices.op_cost import FREE_OPS, GATHERING_OPS, OVERWRITING_OPS
from verl_kernel.env.devices.op_mode import OpMode

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


def bytes_read(run: Callable[[], object], tensors: Sequence[torch.Tensor]) -> int:
    """Lower bound of the bytes of `tensors` that `run()` reads."""
    with _Reads(tensors) as reads:
        run()
    return sum(reads.largest.values())


class _Reads(OpMode):
    """Notes per storage the largest part that one op reads."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._limits = {_storage(tensor): tensor.untyped_storage().nbytes() for tensor in tensors if tensor.numel()}
        self.largest: dict[int, int] = {}

    def run_op(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        result = func(*args, **kwargs)
        name = func._schema.name
        is_view = any(item.alias_info is not None and not item.alias_info.is_write for item in func._schema.returns)
        if not is_view and name not in FREE_OPS:
            skip = name in GATHERING_OPS or name in OVERWRITING_OPS
            self._note(pytree.tree_leaves((args[1:] if skip else args, kwargs)))
        return result

    def _note(self, leaves: Sequence[Any]) -> None:
        for tensor in leaves:
            if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided and tensor.numel():
                key = _storage(tensor)
                if key in self._limits:
                    part = min(_distinct_bytes(tensor), self._limits[key])
                    self.largest[key] = max(self.largest.get(key, 0), part)


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _distinct_bytes(tensor: torch.Tensor) -> int:
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    count = 1
    for size, stride in steps:
        count *= size if stride else 1
    return count * tensor.element_size()
