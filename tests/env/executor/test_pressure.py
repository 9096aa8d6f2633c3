# SPDX-License-Identifier: Apache-2.0
"""How many registers hold something at a time, against what can be counted by hand."""

import pytest

from tests.env.executor.ptx import entry
from verl_kernel.env.executor.flow.graph import pressure
from verl_kernel.env.executor.ptx.parser import parse

HEAD = ".reg .b32 %x, %y, %z; .reg .b64 %a, %b; .reg .pred %p; .reg .b16 %h;"
LOADED = "ld.param.u64 %a, [p0]; ld.global.b32 %x, [%a];"
BODIES = {
    "an address and what it leads to": (LOADED + "st.global.b32 [%a], %x;", 3),
    "what is read no more is free": (LOADED + "mov.b32 %y, %x; mov.b32 %z, %y; st.global.b32 [%a], %z;", 3),
    "three at a time": (LOADED + "add.u32 %y, %x, 1; add.u32 %z, %x, %y; st.global.b32 [%a], %z;", 4),
    "a predicate has no register": (LOADED + "setp.eq.u32 %p, %x, 0; @%p st.global.b32 [%a], %x;", 3),
    "half a register is one": (LOADED + "cvt.u16.u32 %h, %x; st.global.b16 [%a], %h;", 3),
    "what a loop needs lives through it": (
        LOADED + "mov.b32 %y, 0;\nAGAIN: add.u32 %y, %y, %x; setp.lt.u32 %p, %y, 9; @%p bra AGAIN;"
        "st.global.b32 [%a], %y;", 4,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_registers_that_hold_something(name):
    body, most = BODIES[name]
    assert pressure(parse(entry(f"{body}\nret;", parameters=1, declarations=HEAD))) == most
