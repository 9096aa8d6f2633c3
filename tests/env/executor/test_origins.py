# SPDX-License-Identifier: Apache-2.0
"""What stores are, read off the code; and kernels without some of them."""

import numpy as np
import pytest

from tests.env.executor.ptx import aligned, buffer, entry
from verl_kernel.env.executor.flow.origins import stores
from verl_kernel.env.executor.kernel import Kernel
from verl_kernel.env.executor.ptx.parser import parse

HEAD = """
.reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .f32 %f<8>; .reg .pred %p<3>; .reg .b16 %h<3>;
.shared .align 16 .b8 room[1024];
ld.param.u64 %rd0, [p0];
ld.param.u64 %rd1, [p1];
mov.u32 %r7, %tid.x;
mul.wide.u32 %rd2, %r7, 4;
add.u64 %rd0, %rd0, %rd2;
add.u64 %rd1, %rd1, %rd2;
ld.global.b32 %r1, [%rd0];
mov.b32 %f1, %r1;
"""
SAME, SUM = "st.global.b32 [%rd1], %r2;", "st.global.f32 [%rd1], %f2;"
KINDS = {
    "copied": ("mov.b32 %r2, %r1;" + SAME, "moves"),
    "shuffled": ("shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;" + SAME, "moves"),
    "packed": ("cvt.rn.f16.f32 %h1, %f1; mov.b32 %r2, {%h1, %h1};" + SAME, "moves"),
    "through_shared": ("st.shared.b32 [room], %r1; bar.sync 0; ld.shared.b32 %r2, [room];" + SAME, "moves"),
    "computed_in_shared": (
        "add.f32 %f2, %f1, %f1; st.shared.f32 [room], %f2; bar.sync 0; ld.shared.b32 %r2, [room];" + SAME, "computes",
    ),
    "added": ("add.f32 %f2, %f1, 0f00000000;" + SUM, "computes"),
    "clipped": ("max.f32 %f2, %f1, 0f00000000;" + SUM, "computes"),
    "absolute": ("and.b32 %r2, %r1, 2147483647;" + SAME, "computes"),
    "absolute_in_hex": ("and.b32 %r2, %r1, 0x7FFFFFFF;" + SAME, "computes"),
    "masked_by_a_float": ("and.b32 %r2, %r1, 0f7FFFFFFF;" + SAME, "moves"),
    "low_half": ("and.b32 %r2, %r1, 65535;" + SAME, "moves"),
    "chosen_by_data": ("setp.gt.f32 %p1, %f1, 0f00000000; selp.b32 %r2, %r1, 0, %p1;" + SAME, "computes"),
    "chosen_by_place": ("setp.lt.u32 %p1, %r7, 3; selp.b32 %r2, %r1, 0, %p1;" + SAME, "moves"),
    "written_where_data_say": (
        "setp.gt.f32 %p1, %f1, 0f00000000; mov.b32 %r2, 0; @%p1 mov.b32 %r2, %r1;" + SAME, "computes",
    ),
    "masked_by_data": ("setp.gt.f32 %p1, %f1, 0f00000000; @%p1 st.global.b32 [%rd1], %r1;", "moves"),
    "one": ("mov.b32 %r2, 7;" + SAME, "constant"),
    "index": ("add.u32 %r2, %r7, 1;" + SAME, "computes"),
    "loop": (
        "mov.b32 %f2, 0f00000000; mov.u32 %r3, 0;\nLOOP:\nst.global.f32 [%rd1], %f2; add.f32 %f2, %f2, %f1;"
        "add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 4; @%p1 bra LOOP;", "computes",
    ),
    "atomic_sum": ("red.global.add.f32 [%rd1], %f1;", "computes"),
    "where_data_say": (
        "mul.wide.u32 %rd3, %r1, 4; add.u64 %rd3, %rd1, %rd3; st.global.b32 [%rd3], 1;", "computes",
    ),
    "counted": ("mul.wide.u32 %rd3, %r1, 4; add.u64 %rd3, %rd1, %rd3; red.global.add.u32 [%rd3], 1;", "computes"),
    "atomic_one": ("red.global.add.u32 [%rd1], 1;", "constant"),
    "exchanged": ("atom.global.exch.b32 %r2, [%rd1], %r1;", "moves"),
}  # fmt: skip


def text(body: str) -> str:
    return entry(f"{body}\nret;", parameters=2, declarations=HEAD)


@pytest.mark.parametrize("name", KINDS)
def test_what_a_store_is(name):
    body, kind = KINDS[name]
    assert list(stores(parse(text(body))).values()) == [kind]


TWO = "add.f32 %f2, %f1, %f1; st.global.f32 [%rd1], %f2; st.global.b32 [%rd1+128], %r1; st.global.b32 [%rd1+256], 7;"


@pytest.mark.parametrize(
    ("kept", "stored"),
    [
        (None, (6.0, 3.0, 7)),
        (("moves", "constant"), (0.0, 3.0, 7)),
        (("constant",), (0.0, 0.0, 7)),
        ((), (0.0, 0.0, 0)),
    ],
)
def test_only_what_is_kept_is_stored(kept, stored):
    given, out = aligned(128, np.float32), aligned(384, np.float32)
    given[:] = 3.0
    made = Kernel(text(TWO), 1, 0, kept=kept)
    made.launch((1,), [given.ctypes.data, out.ctypes.data], [buffer(given), buffer(out)])
    assert (out[0], out[32], out.view(np.int32)[64]) == stored


def test_an_atomic_that_is_left_out_still_loads():
    given, out = aligned(128, np.float32), aligned(256, np.float32)
    given[:], out[:] = 3.0, 5.0
    body = "atom.global.add.f32 %f2, [%rd1], %f1; st.global.f32 [%rd1+128], %f2;"
    Kernel(text(body), 1, 0, kept=("moves",)).launch(
        (1,), [given.ctypes.data, out.ctypes.data], [buffer(given), buffer(out)]
    )
    assert (out[0], out[32]) == (5.0, 5.0)
