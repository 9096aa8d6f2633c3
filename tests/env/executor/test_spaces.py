# SPDX-License-Identifier: Apache-2.0
"""Generic addresses of local memory, as a called function gets them, are found; others are refused."""

import numpy as np
import pytest

from tests.env.executor.ptx import entry, launch
from verl_kernel.env.executor.errors import Fault, NotKnown

REGISTERS = ".reg .b64 %in, %a, %b, %c, %d; .reg .b32 %t, %x, %y; .reg .pred %p;"
BEGIN = """
.local .align 8 .b8 depot[32];
ld.param.u64 %in, [p0]; mov.u32 %t, %tid.x; mad.wide.u32 %in, %t, 4, %in; mov.b64 %a, depot; cvta.local.u64 %b, %a;
add.u64 %c, %b, 4; setp.gt.u32 %p, %t, 3;
"""
END = "st.global.b32 [%in], %x; ret;"


def run(code):
    out = np.zeros(32, np.uint32)
    launch(entry(BEGIN + code + END, 1, REGISTERS), [out])
    return out


def test_each_lane_has_its_own_memory_at_a_generic_address():
    code = "mov.b64 %d, %c; st.b32 [%d+4], %t; ld.local.b32 %x, [%a+8]; ld.v2.b32 {%x, %y}, [%b+8];"
    assert (run(code) == np.arange(32)).all()


def test_it_ends_where_the_array_ends():
    with pytest.raises(Fault, match="local"):
        run("st.b32 [%c+28], %t; mov.u32 %x, 0;")


@pytest.mark.parametrize("other", ["mov.b64 %d, %in;", "@%p mov.b64 %d, %c;", "ld.global.b64 %d, [%in];"])
def test_what_may_be_an_address_of_another_space_is_refused(other):
    with pytest.raises(NotKnown, match="generic addresses"):
        run(f"mov.b64 %d, %c; {other} add.u64 %d, %d, 0; st.b32 [%d], %t; mov.u32 %x, 0;")
