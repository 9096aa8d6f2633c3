# SPDX-License-Identifier: Apache-2.0
"""What no GPU defines stops a launch: which kind, which lane."""

import numpy as np
import pytest

from tests.env.executor.ptx import entry, launch
from tests.env.executor.test_memory import ACCESSES, HEAD, REGISTERS, data, group, opcode
from verl_kernel.env.executor.errors import Fault
from verl_kernel.env.executor.kernel import Buffer, Kernel


def single(verb, bits, count, offset, room="global"):
    """Lane 7 alone accesses an address; the others access the first one."""
    size, names = bits * count // 8, group(bits, count)
    base = "%in" if room == "global" else "%w6"
    move = f"mov.b64 %w5, {offset}; setp.eq.u32 %p1, %t, 7; selp.b64 %w5, %w5, 0, %p1; add.u64 {base}, {base}, %w5;"
    zero = "".join(f"mov.b{bits} {name.strip()}, 0;" for name in names.strip("{}").split(","))
    address = "%in" if room == "global" else "%w6"
    access = f"{names}, [{address}]" if verb == "ld" else f"[{address}], {names}"
    return entry(
        f"{HEAD} mov.u64 %w6, 0; {zero} {move} {opcode(verb, room, bits, count)} {access}; ret;", 2, REGISTERS
    ), size


@pytest.mark.parametrize("verb", ["ld", "st"])
@pytest.mark.parametrize("bits, count", ACCESSES)
def test_accesses_outside_of_a_buffer_are_faults(verb, bits, count):
    size = bits * count // 8
    whole = data(4096)
    start = 1024
    inside = whole[start : start + 4 * size]
    outsides = [-size, -1, 4 * size, 4 * size - size + 1, 1 << 40, (1 << 62) - inside.ctypes.data]
    for offset in (0, 3 * size, *outsides):
        if offset == 3 * size + 1 and size == 1:
            continue
        text, _ = single(verb, bits, count, offset)
        before = whole.copy()
        if offset in (0, 3 * size):
            launch(text, [inside, inside])
            continue
        with pytest.raises(Fault, match="block 0, warp 0, lane 7") as caught:
            launch(text, [inside, inside])
        assert caught.value.kind == "out_of_bounds"
        outside = np.r_[whole[:start], whole[start + 4 * size :]]
        assert (outside == np.r_[before[:start], before[start + 4 * size :]]).all()


@pytest.mark.parametrize("room", ["global", "shared"])
@pytest.mark.parametrize("verb", ["ld", "st"])
@pytest.mark.parametrize("bits, count", [item for item in ACCESSES if item != (8, 1)])
def test_misaligned_accesses_are_faults(verb, bits, count, room):
    whole = data(1024)
    inside = whole[:256]
    text, size = single(verb, bits, count, bits * count // 16, room)
    with pytest.raises(Fault, match=f"multiple of its {size} bytes .*lane 7") as caught:
        launch(text, [inside, inside], shared=256)
    assert caught.value.kind == "misaligned"


@pytest.mark.parametrize("offset", [60, 64, 68, 0xFFFFFFFC])
@pytest.mark.parametrize("verb", ["ld", "st"])
def test_accesses_outside_of_shared_memory_are_faults(verb, offset):
    text, _ = single(verb, 32, 1, offset, "shared")
    array = data(64)
    if offset == 60:
        launch(text, [array, array], shared=64)
        return
    with pytest.raises(Fault, match=f"byte {offset} of shared memory.*lane 7") as caught:
        launch(text, [array, array], shared=64)
    assert caught.value.kind == "out_of_shared"


@pytest.mark.parametrize("verb, access", [("ld", "%x1, [%w1]"), ("st", "[%w1], %x1")])
def test_accesses_outside_of_local_memory_are_faults(verb, access):
    for offset in (12, 16, 0xFFFFFFFC):
        text = entry(
            f".local .b32 depot[4]; {HEAD} mov.u64 %w1, depot; mov.u32 %x1, 0; setp.eq.u32 %p1, %t, 9;"
            f"@%p1 add.u64 %w1, %w1, {offset}; {verb}.local.b32 {access}; ret;", 2, REGISTERS,
        )  # fmt: skip
        array = data(64)
        if offset == 12:
            launch(text, [array, array])
            continue
        with pytest.raises(Fault, match="lane 9") as caught:
            launch(text, [array, array])
        assert caught.value.kind == "out_of_local"


def test_an_endless_loop_uses_up_its_fuel():
    text = entry(f"{HEAD} LOOP: add.u32 %x1, %t, 1; bra LOOP;", 2, REGISTERS)
    with pytest.raises(Fault) as caught:
        launch(text, [data(64)] * 2, fuel=1000)
    assert caught.value.kind == "endless"
    count = entry(
        f"{HEAD} mov.u32 %x1, 0; LOOP: add.u32 %x1, %x1, 1; setp.lt.u32 %p1, %x1, 10; @%p1 bra LOOP; ret;", 2, REGISTERS
    )
    launch(count, [data(64)] * 2, fuel=10)
    with pytest.raises(Fault):
        launch(count, [data(64)] * 2, fuel=8)


def test_a_trap_stops_the_launch():
    text = entry(f"{HEAD} setp.eq.u32 %p1, %t, 11; @%p1 trap; ret;", 2, REGISTERS)
    with pytest.raises(Fault, match="lane 11") as caught:
        launch(text, [data(64)] * 2, blocks=3)
    assert caught.value.kind == "stopped"
    assert "trap" in str(caught.value)
    never = entry(f"{HEAD} setp.eq.u32 %p1, %t, 99; @%p1 trap; ret;", 2, REGISTERS)
    launch(never, [data(64)] * 2)


def test_a_fault_names_its_line_block_and_warp():
    text = entry(
        f'.file 1 "/folder" "kernel.py"\n{HEAD}\n.loc 1 42 7\nmov.u32 %x1, %ctaid.x; mad.lo.u32 %x1, %x1, 64, %t;'
        "mul.wide.u32 %off, %x1, 4; add.u64 %in, %in, %off; ld.global.b32 %x2, [%in]; ret;", 2, REGISTERS,
    )  # fmt: skip
    with pytest.raises(Fault, match="block 2, warp 1, lane 8") as caught:
        launch(text, [data(4 * (64 * 2 + 32 + 8))] * 2, blocks=4, warps=2)
    assert caught.value.line == ("/folder/kernel.py", 42)


def test_asynchronous_copies_are_checked_on_both_sides():
    for place, kind in (
        ("[%s], [%in+64]", "out_of_bounds"),
        ("[%s+64], [%in]", "out_of_shared"),
        ("[%s], [%in+4]", "misaligned"),
    ):
        text = entry(f"{HEAD} mov.u32 %s, 0; cp.async.cg.shared.global {place}, 16; ret;", 2, REGISTERS)
        with pytest.raises(Fault) as caught:
            launch(text, [data(64)] * 2, shared=64)
        assert caught.value.kind == kind


def test_a_buffer_of_length_nought_holds_nothing():
    array = data(64)
    text, _ = single("ld", 8, 1, 0)
    with pytest.raises(Fault, match="out|none"):
        Kernel(text, 1, 0).launch((1,), [array.ctypes.data] * 2, [Buffer(array.ctypes.data, 0)])


@pytest.mark.parametrize("address", [0, 1 << 62, (1 << 62) + 1, 1 << 63, (1 << 64) - 1])
def test_addresses_are_checked_before_any_buffer_is_known(address):
    text = entry(f"{HEAD} mov.b64 %w1, {address}; ld.global.b8 %h1, [%w1]; ret;", 2, REGISTERS)
    with pytest.raises(Fault) as caught:
        launch(text, [data(64)] * 2)
    assert caught.value.kind == "out_of_bounds"
