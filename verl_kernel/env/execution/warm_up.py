# SPDX-License-Identifier: Apache-2.0
"""A small launch that an executing process makes while the runner loads the candidate.

A forked process has its parent's memory, but each page costs a fault when it is first touched: a thousand of them in
a first launch, which would otherwise keep the first trial waiting.
"""

from __future__ import annotations

import json

import numpy as np

from verl_kernel.env.execution.tally import tally
from verl_kernel.env.execution.work import work
from verl_kernel.env.executor import code
from verl_kernel.env.executor.kernel import Buffer, Kernel
from verl_kernel.env.executor.moves.follow import Follow

_ELEMENTS, _SIGNATURE = 32, {"x": "*fp32", "out": "*fp32"}
_PTX = """.version 8.7
.target sm_89
.address_size 64
.visible .entry doubled(.param .u64 x, .param .u64 out)
.maxntid 32
{
    .reg .b32 %r<2>;
    .reg .f32 %f<3>;
    .reg .b64 %d<6>;
    ld.param.u64 %d0, [x];
    ld.param.u64 %d1, [out];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %d2, %r0, 4;
    add.s64 %d3, %d0, %d2;
    add.s64 %d4, %d1, %d2;
    ld.global.f32 %f0, [%d3];
    add.f32 %f1, %f0, %f0;
    st.global.f32 [%d4], %f1;
    ret;
}
"""


def made() -> bytes:
    """The launch's code, for `run`."""
    return code.make(_PTX, 1, 0).to_bytes()


def run(native: bytes) -> np.ndarray:
    """Launch it; returns what it wrote, twice the numbers from 0."""
    kernel, x = Kernel.loaded(code.read(native)), np.arange(_ELEMENTS, dtype=np.float32)
    out = np.zeros_like(x)
    buffers = [Buffer(array.ctypes.data, array.nbytes) for array in (x, out)]
    follow = Follow(["fp32", "fp32"], np.random.default_rng(0))
    count = kernel.launch((1,), [item.address for item in buffers], buffers, follow=follow)
    told = tally(count, [item.bytes for item in buffers], {"x": 0, "out": 1}, "doubled", _SIGNATURE)
    json.dumps(work(count, told, len(buffers), 0, 0))
    return out
