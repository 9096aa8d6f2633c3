# SPDX-License-Identifier: Apache-2.0
"""Lays out a roofline: operations per second against operations per byte of device memory, on logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from verl_kernel.env import Gpu
from verl_kernel.reporting.charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Chart, Dot, DrawnLine, Mark

_POINTS = 24
"""Points of a roof between the ends of the axis."""


@dataclass(frozen=True)
class KernelWork:
    """A kernel's point in the plot."""

    name: str
    flops: float
    bytes: float
    ms: float

    @property
    def intensity(self) -> float:
        """Return operations per byte."""
        return max(1.0, self.flops) / max(1.0, self.bytes)

    @property
    def rate(self) -> float:
        """Return operations per second."""
        return max(1.0, self.flops) / (self.ms * 1e-3)


@dataclass(frozen=True)
class _Axis:
    """Converts the logarithm of a value to pixels."""

    low: int
    high: int
    start: float
    end: float

    def __call__(self, value: float) -> float:
        part = (math.log10(value) - self.low) / (self.high - self.low)
        return round(self.start + min(1.0, max(0.0, part)) * (self.end - self.start), 1)

    def powers(self, step: int = 1) -> list[int]:
        """Return the powers of ten that are named."""
        return list(range(self.low, self.high + 1, step))


def roofline(gpu: Gpu, works: Sequence[KernelWork]) -> Chart:
    """Return the plot of kernels under the roofs of a GPU: float32, TF32 and 16-bit products."""
    peaks = {"float32": gpu.tflops, "TF32, tensor cores": gpu.tf32_tflops, "16 bits, tensor cores": gpu.half_tflops}
    bandwidth = gpu.bandwidth_gbs * 1e9
    across = _Axis(*_ends([1.0, 1e3, *(work.intensity for work in works)]), LEFT, WIDTH - RIGHT)
    up = _Axis(*_ends([1e9, gpu.half_tflops * 1e12, *(work.rate for work in works)]), HEIGHT - BOTTOM, TOP)
    roofs = [
        _roof(name, bandwidth, tflops * 1e12, across=across, up=up, tone=tone)
        for (name, tflops), tone in zip(peaks.items(), (6, 3, 4), strict=True)
    ]
    points = [_point(work, across, up, tone) for work, tone in zip(works, (2, 1, 5, 2, 1, 5), strict=False)]
    x_marks = tuple(Mark(across(10.0**power), f"1e{power}") for power in across.powers())
    y_marks = tuple(Mark(up(10.0**power), _rate(10.0**power)) for power in up.powers(2))
    return Chart("Roofline", "operations per byte of device memory", x_marks, y_marks, (*roofs, *points), "")


def _ends(values: Sequence[float]) -> tuple[int, int]:
    logs = [math.log10(value) for value in values]
    return math.floor(min(logs)), math.ceil(max(logs))


def _roof(name: str, bandwidth: float, peak: float, *, across: _Axis, up: _Axis, tone: int) -> DrawnLine:
    step = (across.high - across.low) / _POINTS
    ridge = math.log10(peak / bandwidth)
    logs = sorted([*(across.low + number * step for number in range(_POINTS + 1)), ridge])
    path = " ".join(f"{across(10.0**x):g},{up(min(peak, bandwidth * 10.0**x)):g}" for x in logs)
    meaning = f"{bandwidth / 1e9:.0f} GB/s, then {peak / 1e12:.0f} TFLOP/s"
    return DrawnLine(name, (), path, "", "dashed", tone, meaning)


def _point(work: KernelWork, across: _Axis, up: _Axis, tone: int) -> DrawnLine:
    text = f"{work.name}: {work.intensity:.3g} operations per byte, {_rate(work.rate)} operations per second"
    return DrawnLine(work.name, (Dot(across(work.intensity), up(work.rate), text),), "", "", "points", tone, text)


def _rate(value: float) -> str:
    for unit, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"
