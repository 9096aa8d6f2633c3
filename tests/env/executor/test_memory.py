# SPDX-License-Identifier: Apache-2.0
"""Loads, stores and asynchronous copies: values, faults, counts and unwritten bytes."""

import numpy as np
import pytest

from tests.env.executor.ptx import aligned, buffer, entry, launch
from verl_kernel.env.executor.errors import Fault
from verl_kernel.env.executor.kernel import Kernel

REGISTERS = ".reg .b64 %in, %out, %off, %w<8>; .reg .b32 %t, %x<8>, %s; .reg .b16 %h<8>; .reg .pred %p<4>;"
HEAD = "ld.param.u64 %in, [p0]; ld.param.u64 %out, [p1]; mov.u32 %t, %tid.x;"
ACCESSES = [(bits, count) for bits in (8, 16, 32, 64) for count in (1, 2, 4) if bits * count <= 128] + [
    (32, 8),
    (64, 4),
]


def group(bits, count):
    letter = {8: "h", 16: "h", 32: "x", 64: "w"}[bits]
    names = [f"%{letter}{place}" for place in range(count)]
    return names[0] if count == 1 else "{" + ", ".join(names) + "}"


def opcode(verb, room, bits, count):
    return f"{verb}.{room}{f'.v{count}' if count > 1 else ''}.b{bits}"


def data(size):
    """Bytes of no order, from a multiple of 64 on."""
    made = aligned(size)
    made[:] = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    return made


@pytest.mark.parametrize("order", ["forward", "backward"])
@pytest.mark.parametrize("bits, count", ACCESSES)
def test_copies_of_every_width_through_shared_memory(bits, count, order):
    size = bits * count // 8
    place = "mov.u32 %x7, %t;" if order == "forward" else "sub.u32 %x7, 31, %t;"
    names = group(bits, count)
    text = entry(
        f"{HEAD} {place} mul.wide.u32 %off, %x7, {size}; add.u64 %in, %in, %off; add.u64 %out, %out, %off;"
        f"cvt.u32.u64 %s, %off; {opcode('ld', 'global', bits, count)} {names}, [%in];"
        f"{opcode('st', 'shared', bits, count)} [%s], {names}; {opcode('ld', 'shared', bits, count)} {names}, [%s];"
        f"{opcode('st', 'global', bits, count)} [%out], {names}; ret;",
        2, REGISTERS,
    )  # fmt: skip
    given, result = data(32 * size), aligned(32 * size)
    launch(text, [given, result], shared=32 * size)
    assert (result == given).all()


def test_local_memory_is_each_lanes_own():
    text = entry(
        f".local .align 8 .b8 depot[16]; {HEAD} mov.u64 %w1, depot; mul.wide.u32 %off, %t, 4; add.u64 %out, %out, %off;"
        "st.local.b32 [%w1+4], %t; add.u32 %x1, %t, 100; st.local.b32 [%w1+8], %x1; ld.local.b32 %x2, [%w1+4];"
        "ld.local.b32 %x3, [%w1+8]; mad.lo.u32 %x2, %x2, 1000, %x3; st.global.b32 [%out], %x2; ret;",
        2, REGISTERS,
    )  # fmt: skip
    result = np.zeros(32, np.uint32)
    launch(text, [result, result])
    assert [*result] == [1000 * lane + 100 + lane for lane in range(32)]


def test_narrow_loads_are_extended():
    text = entry(
        f"{HEAD} mul.wide.u32 %off, %t, 4; add.u64 %out, %out, %off; cvt.u64.u32 %w1, %t; add.u64 %in, %in, %w1;"
        "ld.global.s8 %x1, [%in]; ld.global.u8 %x2, [%in]; shl.b32 %x1, %x1, 8; or.b32 %x1, %x1, %x2;"
        "st.global.u32 [%out], %x1; ret;", 2, REGISTERS,
    )  # fmt: skip
    given, result = np.arange(240, 272).astype(np.uint8), np.zeros(32, np.uint32)
    launch(text, [given, result])
    assert [*result] == [((item - 256 if item > 127 else item) << 8 | item) & 0xFFFFFFFF for item in map(int, given)]


STRIDED = "mul.wide.u32 %off, %t, {stride}; add.u64 %in, %in, %off; {guard} ld.global.b32 %x1, [%in];"


@pytest.mark.parametrize(
    "stride, lanes, sectors",
    [(4, 32, 4), (8, 32, 8), (32, 32, 32), (64, 32, 32), (0, 32, 1), (4, 9, 2), (64, 5, 5), (0, 0, 0)],
)
def test_sectors_and_accesses_are_counted(stride, lanes, sectors):
    body = STRIDED.format(stride=stride, guard="@%p1")
    text = entry(f"{HEAD} setp.lt.u32 %p1, %t, {lanes}; {body} ret;", 2, REGISTERS)
    array = data(2560)
    made = launch(text, [array, array], blocks=3)
    (count,) = made.site_counts()
    assert (count.accesses, count.sectors, count.site.kind, count.site.bytes) == (
        3 * lanes,
        3 * sectors,
        "global load",
        4,
    )


def test_sectors_of_lanes_in_no_order():
    text = entry(
        f"{HEAD} mul.lo.u32 %x1, %t, 5; and.b32 %x1, %x1, 31; mul.wide.u32 %off, %x1, 16; add.u64 %in, %in, %off;"
        "ld.global.b32 %x2, [%in]; ret;",
        2,
        REGISTERS,
    )
    (count,) = launch(text, [data(512)] * 2).site_counts()
    assert count.sectors == 16


def test_instructions_are_counted_by_the_lanes_that_reach_them():
    text = entry(
        f"{HEAD} setp.ge.u32 %p1, %t, 20; @%p1 bra END; mov.u32 %x1, 0; LOOP: add.u32 %x1, %x1, 1;"
        "setp.lt.u32 %p2, %x1, %t; @%p2 bra LOOP; xor.b32 %x2, %x1, 1; END: ret;", 2, REGISTERS,
    )  # fmt: skip
    counts = launch(text, [data(64)] * 2, blocks=2).instruction_counts()
    rounds = sum(max(1, lane) for lane in range(20))
    assert counts["ld.param.u64"] == 2 * 2 * 32
    assert counts["xor.b32"] == 2 * 20
    assert counts["ret"] == 2 * 32
    assert counts["add.u32"] == counts["setp.lt.u32"] == 2 * rounds
    assert counts["bra"] == 2 * (32 + rounds)
    assert counts["setp.ge.u32"] == 64


@pytest.mark.parametrize("bits, count", ACCESSES)
@pytest.mark.parametrize("is_dense", [True, False])
def test_reads_of_unwritten_bytes_are_counted(bits, count, is_dense):
    size, names = bits * count // 8, group(bits, count)
    stride = size if is_dense else 2 * size
    move = f"mul.wide.u32 %off, %t, {stride}; add.u64 %w6, %in, %off; add.u64 %w7, %out, %off;"
    code = (
        f"{opcode('ld', 'global', bits, count)} {names}, [%w6]; {opcode('st', 'global', bits, count)} [%w7], {names};"
    )
    source, target = data(32 * stride), aligned(32 * stride)
    seen, put = np.ones(32 * stride, np.uint8), np.zeros(32 * stride, np.uint8)
    made = Kernel(entry(f"{HEAD} {move} {code} ret;", 2, REGISTERS), 1, 0)
    arguments, buffers = [source.ctypes.data, target.ctypes.data], [buffer(source, seen), buffer(target, put)]
    made.launch((1,), arguments, buffers)
    assert [item.unwritten for item in made.site_counts()] == [0, 0]
    marked = np.arange(32 * stride) % stride < size
    assert (put.astype(bool) == marked).all()
    seen[[5 * stride + size - 1, 9 * stride]] = 0
    made.launch((1,), arguments, buffers)
    assert made.site_counts()[0].unwritten == 2


@pytest.mark.parametrize("size", [4, 8, 16])
def test_asynchronous_copies_and_zeros_where_nothing_is_read(size):
    mark = "cg" if size == 16 else "ca"
    text = entry(
        f"{HEAD} mul.wide.u32 %off, %t, {size}; add.u64 %in, %in, %off; cvt.u32.u64 %s, %off; and.b32 %x1, %t, 1;"
        f"setp.eq.u32 %p1, %x1, 0; selp.b32 %x2, {size}, 0, %p1; @!%p1 mov.u64 %in, 64;"
        f"cp.async.{mark}.shared.global [%s+0], [%in+0], {size}, %x2; cp.async.commit_group; cp.async.wait_group 0;"
        f"mul.wide.u32 %off, %t, {size}; add.u64 %out, %out, %off;"
        + "".join(f"ld.shared.b32 %x3, [%s+{at}]; st.global.b32 [%out+{at}], %x3;" for at in range(0, size, 4))
        + "ret;", 2, REGISTERS,
    )  # fmt: skip
    given, result = data(32 * size), np.full(32 * size, 7, np.uint8)
    launch(text, [given, result], shared=32 * size)
    wanted = given.reshape(32, size).copy()
    wanted[1::2] = 0
    assert (result.reshape(32, size) == wanted).all()


@pytest.mark.parametrize("size", [4, 8, 16])
def test_short_asynchronous_copies_are_filled_with_zeros(size):
    mark = "cg" if size == 16 else "ca"
    text = entry(
        f"{HEAD} mul.wide.u32 %off, %t, {size}; add.u64 %in, %in, %off; add.u64 %out, %out, %off; cvt.u32.u64 %s, %off;"
        f"rem.u32 %x2, %t, {size + 1}; cp.async.{mark}.shared.global [%s], [%in], {size}, %x2;"
        + "".join(f"ld.shared.b32 %x3, [%s+{at}]; st.global.b32 [%out+{at}], %x3;" for at in range(0, size, 4))
        + "ret;", 2, REGISTERS,
    )  # fmt: skip
    last = 31 * size + 31 % (size + 1)  # the last lane reads no further than the buffer goes
    given, result = data(32 * size), np.full(32 * size, 7, np.uint8)
    made = Kernel(text, 1, 32 * size)
    made.launch((1,), [given.ctypes.data, result.ctypes.data], [buffer(given[:last]), buffer(result)])
    wanted = given.reshape(32, size).copy()
    for lane in range(32):
        wanted[lane, lane % (size + 1) :] = 0
    assert (result.reshape(32, size) == wanted).all()


def test_a_too_long_asynchronous_copy_is_a_fault():
    text = entry(
        f"{HEAD} mov.u32 %s, 0; mov.u32 %x2, 17; cp.async.cg.shared.global [%s], [%in], 16, %x2; ret;", 2, REGISTERS
    )
    with pytest.raises(Fault):
        launch(text, [data(64)] * 2, shared=64)


def test_tables_of_constants_are_read_and_kept_within():
    head = ".global .align 4 .u32 table[4] = {10, 20, 30, 40};"
    code = (
        "mov.u64 %w1, table; and.b32 %x1, %t, {mask}; mul.wide.u32 %off, %x1, 4; add.u64 %w1, %w1, %off;"
        "ld.global.nc.b32 %x2, [%w1]; mul.wide.u32 %off, %t, 4; add.u64 %out, %out, %off;"
        "st.global.b32 [%out], %x2; ret;"
    )
    result = np.zeros(32, np.uint32)
    launch(entry(HEAD + code.format(mask=3), 2, REGISTERS, head), [result, result])
    assert [*result] == [10, 20, 30, 40] * 8
    with pytest.raises(Fault, match="lane 4"):
        launch(entry(HEAD + code.format(mask=7), 2, REGISTERS, head), [result, result])
