# SPDX-License-Identifier: Apache-2.0
"""The constants of the machine model: each with its value, its meaning and where the value comes from.

`fitted` means fitted to published eager times of single operators on an H100 (docs/notes/clock.md); `assumed` means
that no measurement supports the value.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constant:
    """One constant of the model."""

    value: float
    meaning: str
    source: str


_SHARES = {
    "contiguous": Constant(0.90, "share of bandwidth: operands of one layout and type", "fitted"),
    "mixed": Constant(0.75, "share of bandwidth: broadcasting, conversions, copies, gathers", "fitted"),
    "reduction": Constant(0.83, "share of bandwidth: reductions", "fitted"),
    "scan": Constant(0.55, "share of bandwidth: running sums along rows", "fitted"),
    "norm": Constant(0.67, "share of bandwidth: group and instance norm", "fitted"),
    "unaligned": Constant(0.30, "share of bandwidth: joining rows that are no multiple of 16 bytes", "fitted"),
    "fma": Constant(0.77, "share of the float32 peak: products without tensor cores", "fitted: matrix products"),
    "direct": Constant(0.27, "share of the float32 peak: grouped convolutions, 3-D ones of few channels", "fitted"),
    "convolution": Constant(0.44, "share of the TF32 peak: convolutions as matrix products", "fitted"),
    "transposed": Constant(0.14, "share of the TF32 peak: transposed 3-D convolutions of stride 1", "fitted"),
    "tensor": Constant(0.60, "share of a tensor-core peak: other products", "assumed"),
}
_RATES = {
    "latency_ns": Constant(
        600.0, "wait for device memory; a block moves its bytes in flight once in it", "fitted: layer norm"
    ),
    "l2_latency_ns": Constant(250.0, "the same for what L2 holds", "assumed: published micro-benchmarks, 200 to 270"),
    "window_output": Constant(110.0, "instructions for an output of a pooling window", "fitted"),
    "window_element": Constant(30.0, "instructions for an element of a pooling window", "fitted"),
    "tap_output": Constant(205.0, "instructions for an output of a depthwise convolution", "fitted"),
    "tap_element": Constant(14.0, "instructions for a tap of a depthwise convolution", "fitted"),
}
_TIMELINE = {
    "op_host_us": Constant(10.0, "host's time for a torch op", "fitted: level 3, one half"),
    "product_host_us": Constant(20.0, "host's time for a product or a norm", "fitted: level 3, one half"),
    "convolution_host_us": Constant(29.0, "host's time for a convolution or a batch norm", "fitted: level 3, one half"),
    "triton_host_us": Constant(20.0, "host's time for a Triton launch", "assumed: as a product"),
    "inductor_launch_us": Constant(
        8.0, "host's time for a launch by torch.compile", "published: tritonbench, pull request 1017, 6.8 to 9.1 us"
    ),
    "inductor_graph_us": Constant(
        30.0,
        "host's time for a graph of torch.compile, besides its launches",
        "published: tritonbench, pull requests 1016 and 1017, 26 to 37 us",
    ),
    "launch_us": Constant(4.0, "shortest distance of two kernels of a stream", "NVIDIA, CUDA graphs, 2019: 3.8 us"),
    "program_ns": Constant(1000.0, "shortest time of a block that loads, computes and stores once", "assumed"),
    "head_start_us": Constant(
        90.0, "start of the host before the device, behind a fill of 256 MB", "published protocol"
    ),
}
CONSTANTS = {**_SHARES, **_RATES, **_TIMELINE}
"""All constants by name."""


def constant(name: str) -> float:
    """Return the value of a constant."""
    return CONSTANTS[name].value
