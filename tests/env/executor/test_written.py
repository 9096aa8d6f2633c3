# SPDX-License-Identifier: Apache-2.0
"""Loads of bytes that nobody wrote, of buffers that are watched beside others that are not."""

import numpy as np
import pytest

from tests.env.executor.test_parser import HEAD
from verl_kernel.env.executor.kernel import Buffer, Kernel

COPY = f"""{HEAD}
.visible .entry k(
.param .u64 .ptr .global .align 1 k_param_0,
.param .u64 .ptr .global .align 1 k_param_1
)
{{
.reg .b32 %r<4>; .reg .b64 %rd<6>;
ld.param.b64 %rd1, [k_param_0];
ld.param.b64 %rd2, [k_param_1];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd3, %r1, 4;
add.s64 %rd4, %rd1, %rd3;
add.s64 %rd5, %rd2, %rd3;
ld.global.b32 %r2, [%rd4];
st.global.b32 [%rd5], %r2;
ret;
}}
"""


@pytest.fixture(scope="module")
def copy():
    return Kernel(COPY, 1, 0)


def unwritten(kernel, source, target, buffers):
    before = [count.unwritten for count in kernel.site_counts()]
    for _ in range(2):  # the second time the sites know their buffers
        kernel.launch((1,), [source.ctypes.data, target.ctypes.data], buffers)
    return [after.unwritten - first for after, first in zip(kernel.site_counts(), before, strict=True)]


def watched(array, marks):
    return Buffer(array.ctypes.data, array.nbytes, marks.ctypes.data)


def plain(array):
    return Buffer(array.ctypes.data, array.nbytes)


def test_what_was_written_is_no_finding(copy):
    source, target, marks = np.arange(32, dtype=np.int32), np.zeros(32, np.int32), np.ones(128, np.uint8)
    assert unwritten(copy, source, target, [watched(source, marks), plain(target)]) == [0, 0]
    assert target.tolist() == list(range(32))


def test_bytes_that_nobody_wrote_are_found(copy):
    source, target, marks = np.zeros(32, np.int32), np.zeros(32, np.int32), np.ones(128, np.uint8)
    marks[21] = 0
    assert unwritten(copy, source, target, [watched(source, marks), plain(target)])[0] >= 2


def test_reads_of_unwritten_bytes_are_told_in_sentences():
    text = COPY.replace("ld.global", ".loc 1 7 3\nld.global").replace(
        ".visible", '.file 1 "/folder" "kernel.py"\n.visible'
    )
    made, marks = Kernel(text, 1, 0), np.ones(128, np.uint8)
    source, target = np.zeros(32, np.int32), np.zeros(32, np.int32)
    buffers = [watched(source, marks), plain(target)]
    made.launch((1,), [source.ctypes.data, target.ctypes.data], buffers)
    assert made.unwritten() == []
    marks[[3, 4, 40]] = 0
    made.launch((1,), [source.ctypes.data, target.ctypes.data], buffers)
    (sentence,) = made.unwritten()
    assert "`ld.global.b32 %r2, [%rd4]` reads bytes that nobody has written in 3 lanes" in sentence
    assert "(/folder/kernel.py, line 7)" in sentence


def test_a_store_marks_its_bytes_and_no_others(copy):
    source, target, marks = np.zeros(32, np.int32), np.zeros(40, np.int32), np.zeros(160, np.uint8)
    unwritten(copy, source, target, [plain(source), watched(target, marks)])
    assert marks.tolist() == [1] * 128 + [0] * 32


@pytest.mark.parametrize("first_is_watched", [True, False])
def test_lanes_in_two_buffers_have_shadows_of_their_own(copy, first_is_watched):
    both, source = np.zeros(32, np.int32), np.zeros(32, np.int32)
    marks = np.zeros(64 + 4096, np.uint8)
    halves = [both[:16], both[16:]]
    buffers = [
        watched(half, marks) if (place == 0) == first_is_watched else plain(half) for place, half in enumerate(halves)
    ]
    unwritten(copy, source, both, [plain(source), *buffers])
    assert marks[:64].all()
    assert not marks[64:].any()
