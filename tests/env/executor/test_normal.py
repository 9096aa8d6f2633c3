# SPDX-License-Identifier: Apache-2.0
"""Registers without subnormals are not flushed again, and all others are."""

import numpy as np
import pytest

from tests.env.executor.ptx import evaluate
from tests.env.executor.test_flow import graph
from verl_kernel.env.executor.flow.graph import normal


@pytest.mark.parametrize(
    ("line", "holds_none"),
    [
        ("add.ftz.f32 %r1, %r8, %r8;", True),
        ("fma.rn.ftz.f32 %r1, %r8, %r8, %r8;", True),
        ("mov.b32 %r1, 0f3F800000;", True),
        ("mov.b32 %r1, 0f80000000;", True),
        ("add.ftz.f32 %r2, %r8, %r8; mov.b32 %r1, %r2;", True),
        ("add.ftz.f32 %r2, %r8, %r8; selp.f32 %r1, %r2, 0f3F800000, %p1;", True),
        ("cvt.rn.f32.s32 %r1, %r8;", True),
        ("mov.b32 %r1, 0f3F800000; @%p1 add.ftz.f32 %r1, %r8, %r8;", True),
        ("add.f32 %r1, %r8, %r8;", False),
        ("mov.b32 %r1, 0f00400000;", False),
        ("mov.b32 %r1, %r8;", False),
        ("mov.b32 %r1, 1;", False),
        ("add.ftz.f32 %r2, %r8, %r8; selp.f32 %r1, %r2, %r8, %p1;", False),
        ("add.ftz.f32 %r1, %r8, %r8; add.s32 %r1, %r1, 1;", False),
        ("ld.global.b32 %r1, [%rd1];", False),
    ],
)
def test_what_holds_no_subnormal(line, holds_none):
    assert ("%r1" in normal(graph("mov.u32 %r8, %tid.x;\n" + line))) == holds_none


def test_a_register_that_something_else_writes_is_flushed():
    tiny = np.array([1, 0x00400000, 0x80000001, 0x3F800000], np.uint32)
    code = (
        ".reg .b32 %x, %y; add.ftz.f32 %x, %a, %a; mov.b32 %x, %a; add.ftz.f32 %d, %x, 0f80000000;"
        "mov.b32 %y, 0f00400000; mul.ftz.f32 %e, %y, 0f40000000; neg.ftz.f32 %f, %a;"
    )
    found = evaluate(code, {"a": tiny}, dict.fromkeys("def", np.uint32))
    assert found["d"].tolist() == [0, 0, 0x80000000, 0x3F800000]
    assert found["e"].tolist() == [0] * 4
    assert found["f"].tolist() == [0x80000000, 0x80000000, 0, 0xBF800000]
