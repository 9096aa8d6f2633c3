# SPDX-License-Identifier: Apache-2.0
"""Loads, stores and asynchronous copies: values, faults, counts and unwritten bytes."""

from itertools import pairwise

import numpy as np
import pytest

from tests.env.emulator.ptx import aligned, buffer, counted, entry, executed, fails, kernel, launch
from tests.tiers import thinned
from verl_kernel.env.emulator.errors import Fault, NotKnown
from verl_kernel.env.emulator.kernel import Buffer, Kernel, unwritten

REGISTERS = ".reg .b64 %in, %out, %off, %w<8>; .reg .b32 %t, %x<8>, %s; .reg .b16 %h<8>; .reg .pred %p<4>;"
HEAD = "ld.param.u64 %in, [p0]; ld.param.u64 %out, [p1]; mov.u32 %t, %tid.x;"
OWN = f"{HEAD} mul.wide.u32 %off, %t, {{}}; add.u64 %in, %in, %off; add.u64 %out, %out, %off; cvt.u32.u64 %s, %off;"
"""Each lane has so many bytes of its own."""
ACCESSES = [(bits, count) for bits in (8, 16, 32, 64) for count in (1, 2, 4) if bits * count <= 128]
ACCESSES = thinned([*ACCESSES, (32, 8), (64, 4)], 5)
SOME = ACCESSES[1:]
WORDS = f"{OWN.format(4)}\n.loc 1 7 3\nld.global.b32 %x1, [%in]; st.global.b32 [%out], %x1;"
GENERIC = """
.local .align 8 .b8 depot[32]; mov.b64 %w1, depot; cvta.local.u64 %w2, %w1; add.u64 %w3, %w2, 4;
setp.gt.u32 %p1, %t, 3;
"""


def group(bits, count):
    letter = {8: "h", 16: "h", 32: "x", 64: "w"}[bits]
    names = [f"%{letter}{place}" for place in range(count)]
    return names[0] if count == 1 else "{" + ", ".join(names) + "}"


def opcode(verb, room, bits, count):
    return f"{verb}.{room}{f'.v{count}' if count > 1 else ''}.b{bits}"


def data(size):
    made = aligned(size)
    made[:] = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    return made


def placed(size, order):
    """As `OWN`, where `order` makes `%x7` of the lane's number."""
    return OWN.replace("%t, {}", f"%x7, {size}").replace("%tid.x;", f"%tid.x; {order}")


def written(code, declarations="", head=""):
    return entry(f"{declarations} {code} ret;", 2, REGISTERS, head)


@pytest.mark.parametrize("order", ["mov.u32 %x7, %t;", "sub.u32 %x7, 31, %t;"], ids=["forward", "backward"])
@pytest.mark.parametrize("access", ACCESSES, ids=str)
def test_copies_of_every_width_through_shared_memory(access, order):
    size, names = access[0] * access[1] // 8, group(*access)
    moves = " ".join(
        f"{opcode('ld', room, *access)} {names}, [{source}]; {opcode('st', other, *access)} [{target}], {names};"
        for room, source, other, target in (("global", "%in", "shared", "%s"), ("shared", "%s", "global", "%out"))
    )
    given, result = data(32 * size), aligned(32 * size)
    launch(written(placed(size, order) + moves), [given, result], shared=32 * size)
    assert (result == given).all()


def test_narrow_loads_are_extended():
    text = written(
        f"{HEAD} mul.wide.u32 %off, %t, 4; add.u64 %out, %out, %off; cvt.u64.u32 %w1, %t; add.u64 %in, %in, %w1;"
        "ld.global.s8 %x1, [%in]; ld.global.u8 %x2, [%in]; shl.b32 %x1, %x1, 8; or.b32 %x1, %x1, %x2;"
        "st.global.u32 [%out], %x1;"
    )
    given, result = np.arange(240, 272).astype(np.uint8), np.zeros(32, np.uint32)
    launch(text, [given, result])
    assert [*result] == [((item - 256 if item > 127 else item) << 8 | item) & 0xFFFFFFFF for item in map(int, given)]


@pytest.mark.parametrize("kind, wanted", [("s32", -100), ("u32", 2**32 - 100), ("s16", -100), ("u16", 2**16 - 100)])
def test_a_narrow_parameter_is_extended(kind, wanted):
    code = f"ld.param.u64 %out, [p0]; ld.param.{kind} %w1, [p1]; st.global.u64 [%out], %w1;"
    result = np.zeros(4, np.int64)
    made = Kernel(entry(f"{code} ret;", 2, ".reg .b64 %out, %w1;"), 1, 0)
    made.launch((1,), [result.ctypes.data, -100 & (1 << 64) - 1], [buffer(result)])
    assert result[0] == wanted


@pytest.mark.parametrize("stride, lanes, sectors", [
    (4, 32, 4), (8, 32, 8), (32, 32, 32), (64, 32, 32), (0, 32, 1), (4, 9, 2), (64, 5, 5), (0, 0, 0),
])  # fmt: skip
@pytest.mark.parametrize("order", ["mov.u32 %x7, %t;", "mul.lo.u32 %x7, %t, 5; and.b32 %x7, %x7, 31;"])
def test_sectors_and_accesses_are_counted(stride, lanes, sectors, order):
    array = data(2560)
    text = written(f"{placed(stride, order)} setp.lt.u32 %p1, %x7, {lanes}; @%p1 ld.global.b32 %x1, [%in];")
    (count,) = launch(text, [array, array], blocks=3).site_counts()
    assert (count.accesses, count.sectors) == (3 * lanes, 3 * sectors)
    assert (count.site.kind, count.site.bytes) == ("global load", 4)


def test_instructions_are_counted_by_the_lanes_that_reach_them():
    text = written(
        f"{HEAD} setp.ge.u32 %p1, %t, 20; @%p1 bra END; mov.u32 %x1, 0; LOOP: add.u32 %x1, %x1, 1;"
        "setp.lt.u32 %p2, %x1, %t; @%p2 bra LOOP; xor.b32 %x2, %x1, 1; END:"
    )
    counts = executed(counted(Kernel(text, 1, 0), [data(64)] * 2, blocks=2))
    rounds = sum(max(1, lane) for lane in range(20))
    wanted = {"ld.param.u64": 2 * 2 * 32, "xor.b32": 2 * 20, "ret": 2 * 32, "bra": 2 * (32 + rounds), "setp.ge.u32": 64}
    wanted |= {"add.u32": 2 * rounds, "setp.lt.u32": 2 * rounds}
    assert {name: counts[name] for name in wanted} == wanted


@pytest.mark.parametrize("access", ACCESSES, ids=str)
@pytest.mark.parametrize("is_dense", [True, False])
def test_reads_of_unwritten_bytes_are_counted(access, is_dense):
    size, names = access[0] * access[1] // 8, group(*access)
    stride = size if is_dense else 2 * size
    move = f"mul.wide.u32 %off, %t, {stride}; add.u64 %w6, %in, %off; add.u64 %w7, %out, %off;"
    code = f"{opcode('ld', 'global', *access)} {names}, [%w6]; {opcode('st', 'global', *access)} [%w7], {names};"
    source, target = data(32 * stride), aligned(32 * stride)
    seen, put = np.ones(32 * stride, np.uint8), np.zeros(32 * stride, np.uint8)
    made = Kernel(written(f"{HEAD} {move} {code}"), 1, 0)
    arguments, buffers = [source.ctypes.data, target.ctypes.data], [buffer(source, seen), buffer(target, put)]
    made.launch((1,), arguments, buffers)
    assert [item.unwritten for item in made.site_counts()] == [0, 0]
    marked = np.arange(32 * stride) % stride < size
    assert (put.astype(bool) == marked).all()
    seen[[5 * stride + size - 1, 9 * stride]] = 0
    made.launch((1,), arguments, buffers)
    assert made.site_counts()[0].unwritten == 2


def copied(*buffers, made=None):
    """Copy 32 words between two arrays, with what is known of their bytes; twice, as sites then know their buffers."""
    made = made or Kernel(written(WORDS, head='.file 1 "/folder" "kernel.py"'), 1, 0)
    for _ in range(2):
        made.launch((1,), [one.address for one in buffers[:2]], buffers)
    return made


def test_reads_of_unwritten_bytes_are_told_in_sentences():
    source, target, marks = np.arange(32, dtype=np.int32), np.zeros(32, np.int32), np.ones(128, np.uint8)
    buffers = [buffer(source, marks), buffer(target)]
    made = copied(*buffers)
    assert [site.unwritten for site in made.site_counts()] == [0, 0]
    assert target.tolist() == list(range(32))
    marks[[3, 4, 40]] = 0
    sentence = unwritten(made.program, copied(*buffers, made=made).site_counts()[0])
    assert "`ld.global.b32 %x1, [%in]` reads uninitialised memory in 6 lanes" in sentence
    assert "(/folder/kernel.py, line 7)" in sentence


@pytest.mark.parametrize("parts, watched, size", [((0, 40), 0, 128), ((0, 16, 32), 0, 64), ((0, 16, 32), 1, 64)])
def test_a_store_marks_its_bytes_and_no_others(parts, watched, size):
    """Also where its lanes are in two buffers, of which one is watched."""
    target, marks = np.zeros(40, np.int32), np.zeros(64 + 4096, np.uint8)
    pieces = [target[start:end] for start, end in pairwise(parts)]
    shadows = [marks if place == watched else None for place in range(len(pieces))]
    copied(buffer(np.zeros(32, np.int32)), *map(buffer, pieces, shadows))
    assert marks[:size].all()
    assert not marks[size:].any()


@pytest.mark.parametrize("size", [4, 8, 16])
@pytest.mark.parametrize("is_short", [False, True], ids=["all or nothing", "short"])
def test_what_an_asynchronous_copy_leaves_out_is_zero(size, is_short):
    """Lanes copy all bytes, or none from an address that does not exist; or 0, 1, 2... of them."""
    some = f"and.b32 %x2, %t, 1; setp.eq.u32 %p1, %x2, 0; selp.b32 %x2, {size}, 0, %p1; @!%p1 mov.u64 %in, 64;"
    text = written(
        f"{OWN.format(size)} {f'rem.u32 %x2, %t, {size + 1};' if is_short else some}"
        f"cp.async.{'cg' if size == 16 else 'ca'}.shared.global [%s+0], [%in+0], {size}, %x2;"
        "cp.async.commit_group; cp.async.wait_group 0;"
        + "".join(f"ld.shared.b32 %x3, [%s+{at}]; st.global.b32 [%out+{at}], %x3;" for at in range(0, size, 4))
    )
    lengths = [lane % (size + 1) if is_short else size * (lane % 2 == 0) for lane in range(32)]
    given, result = data(32 * size), np.full(32 * size, 7, np.uint8)
    last = max(lane * size + length for lane, length in enumerate(lengths) if length)
    arguments, buffers = [given.ctypes.data, result.ctypes.data], [buffer(given[:last]), buffer(result)]
    kernel(text, 1, 32 * size).launch((1,), arguments, buffers)
    wanted = given.reshape(32, size).copy()
    for lane, length in enumerate(lengths):
        wanted[lane, length:] = 0
    assert (result.reshape(32, size) == wanted).all()


def test_tables_of_constants_are_read_and_kept_within():
    head = ".global .align 4 .u32 table[4] = {10, 20, 30, 40};"
    code = (
        "mov.u64 %w1, table; and.b32 %x1, %t, {mask}; mul.wide.u32 %off, %x1, 4; add.u64 %w1, %w1, %off;"
        "ld.global.nc.b32 %x2, [%w1]; mul.wide.u32 %off, %t, 4; add.u64 %out, %out, %off; st.global.b32 [%out], %x2;"
    )
    result = np.zeros(32, np.uint32)
    launch(written(HEAD + code.format(mask=3), head=head), [result, result])
    assert [*result] == [10, 20, 30, 40] * 8
    with pytest.raises(Fault, match="lane 4"):
        launch(written(HEAD + code.format(mask=7), head=head), [result, result])


def single(verb, bits, count, room="global"):
    """Lane 7 alone accesses the address that is so far behind the first one, which is that of the others."""
    names, base = group(bits, count), "%in" if room == "global" else "%w6"
    zero = "".join(f"mov.b{bits} {name.strip()}, 0;" for name in names.strip("{}").split(","))
    access = f"{names}, [{base}]" if verb == "ld" else f"[{base}], {names}"
    move = f"setp.eq.u32 %p1, %t, 7; selp.b64 %w5, %w5, 0, %p1; add.u64 {base}, {base}, %w5;"
    code = f"ld.param.u64 %w5, [p2]; {HEAD} mov.u64 %w6, 0; {move} {zero} {opcode(verb, room, bits, count)} {access};"
    return entry(f"{code} ret;", 3, REGISTERS)


def fault(text, array, offset=0, *, shared=0):
    """What is found where lane 7 goes so far; None if nothing is."""
    try:
        kernel(text, 1, shared).launch((1,), [array.ctypes.data] * 2 + [offset & (1 << 64) - 1], [buffer(array)])
    except Fault as found:
        assert "lane 7" in str(found)
        return found
    return None


@pytest.mark.parametrize("verb", ["ld", "st"])
@pytest.mark.parametrize("access", ACCESSES, ids=str)
def test_accesses_outside_of_a_buffer_are_faults(access, verb):
    size, start, whole, text = access[0] * access[1] // 8, 1024, data(4096), single(verb, *access)
    inside, before = whole[start : start + 4 * size], whole.copy()
    assert fault(text, inside, 0) is fault(text, inside, 3 * size) is None
    for offset in (-size, -1, 4 * size, 3 * size + 1, 1 << 40, (1 << 62) - inside.ctypes.data):
        found = fault(text, inside, offset)
        assert "block 0, warp 0, lane 7" in str(found)
        assert found.kind == "out_of_bounds"
    outside = np.r_[:start, start + 4 * size : 4096]
    assert (whole[outside] == before[outside]).all()


@pytest.mark.parametrize("room", ["global", "shared"])
@pytest.mark.parametrize("verb", ["ld", "st"])
@pytest.mark.parametrize("access", SOME, ids=str)
def test_misaligned_accesses_are_faults(access, verb, room):
    bits, count = access
    found = fault(single(verb, bits, count, room), data(1024)[:256], bits * count // 16, shared=256)
    assert found.kind == "misaligned"
    assert f"multiple of its {bits * count // 8} bytes " in str(found)


@pytest.mark.parametrize("verb", ["ld", "st"])
@pytest.mark.parametrize("offset", [64, 68, 0xFFFFFFFC])
def test_accesses_outside_of_shared_memory_are_faults(verb, offset):
    text, array = single(verb, 32, 1, "shared"), data(64)
    assert fault(text, array, 60, shared=64) is None
    found = fault(text, array, offset, shared=64)
    assert found.kind == "out_of_shared"
    assert f"byte {offset} of shared memory" in str(found)


@pytest.mark.parametrize("access", ["ld.local.b32 %x1, [%w1]", "st.local.b32 [%w1], %x1"])
def test_accesses_outside_of_local_memory_are_faults(access):
    code = f"{HEAD} mov.u64 %w1, depot; mov.u32 %x1, 0; ld.param.u64 %w5, [p2]; setp.eq.u32 %p1, %t, 7;"
    text = entry(f".local .b32 depot[4]; {code} @%p1 add.u64 %w1, %w1, %w5; {access}; ret;", 3, REGISTERS)
    assert fault(text, data(64), 12) is None
    assert fault(text, data(64), 16).kind == fault(text, data(64), 0xFFFFFFFC).kind == "out_of_local"


def stored(code):
    out = np.zeros(32, np.uint32)
    launch(written(f"{OWN.format(4)} {GENERIC} {code} st.global.b32 [%in], %x1;"), [out, out])
    return out


def test_each_lane_has_its_own_memory_at_a_generic_address():
    code = "mov.b64 %w4, %w3; st.b32 [%w4+4], %t; ld.local.b32 %x1, [%w1+8]; ld.v2.b32 {%x1, %x2}, [%w2+8];"
    assert (stored(code) == np.arange(32)).all()
    with pytest.raises(Fault, match="local"):  # beyond the array
        stored("st.b32 [%w3+28], %t; mov.u32 %x1, 0;")


@pytest.mark.parametrize("other", ["mov.b64 %w4, %in;", "@%p1 mov.b64 %w4, %w3;", "ld.global.b64 %w4, [%in];"])
def test_what_may_be_an_address_of_another_space_is_refused(other):
    with pytest.raises(NotKnown, match="generic addresses"):
        stored(f"mov.b64 %w4, %w3; {other} add.u64 %w4, %w4, 0; st.b32 [%w4], %t; mov.u32 %x1, 0;")


def test_an_endless_loop_uses_up_its_fuel():
    with fails("endless"):
        launch(written(f"{HEAD} LOOP: add.u32 %x1, %t, 1; bra LOOP;"), [data(64)] * 2, fuel=1000)
    count = written(f"{HEAD} mov.u32 %x1, 0; LOOP: add.u32 %x1, %x1, 1; setp.lt.u32 %p1, %x1, 10; @%p1 bra LOOP;")
    launch(count, [data(64)] * 2, fuel=10)
    with fails("endless"):
        launch(count, [data(64)] * 2, fuel=8)


def test_a_trap_stops_the_launch():
    with fails("stopped", r"trap.*lane 11"):
        launch(written(f"{HEAD} setp.eq.u32 %p1, %t, 11; @%p1 trap;"), [data(64)] * 2, blocks=3)
    launch(written(f"{HEAD} setp.eq.u32 %p1, %t, 99; @%p1 trap;"), [data(64)] * 2)


def test_a_fault_names_its_line_block_and_warp():
    text = written(
        f"{HEAD}\n.loc 1 42 7\nmov.u32 %x1, %ctaid.x; mad.lo.u32 %x1, %x1, 64, %t; mul.wide.u32 %off, %x1, 4;"
        "add.u64 %in, %in, %off; ld.global.b32 %x2, [%in];", '.file 1 "/folder" "kernel.py"\n',
    )  # fmt: skip
    with pytest.raises(Fault, match="block 2, warp 1, lane 8") as caught:
        launch(text, [data(4 * (64 * 2 + 32 + 8))] * 2, blocks=4, warps=2)
    assert caught.value.line == ("/folder/kernel.py", 42)


@pytest.mark.parametrize("copy, kind", [
    ("[%s], [%in+64], 16", "out_of_bounds"), ("[%s+64], [%in], 16", "out_of_shared"),
    ("[%s], [%in+4], 16", "misaligned"), ("[%s], [%in], 16, 17", "stopped"),
])  # fmt: skip
def test_asynchronous_copies_are_checked_on_both_sides(copy, kind):
    with fails(kind):
        launch(written(f"{HEAD} mov.u32 %s, 0; cp.async.cg.shared.global {copy};"), [data(64)] * 2, shared=64)


def test_a_buffer_of_length_nought_holds_nothing():
    array = data(64)
    with pytest.raises(Fault, match="out|none"):
        kernel(single("ld", 8, 1)).launch((1,), [array.ctypes.data] * 2 + [0], [Buffer(array.ctypes.data, 0)])


@pytest.mark.parametrize("address", [0, 1 << 62, (1 << 62) + 1, 1 << 63, (1 << 64) - 1])
def test_addresses_are_checked_before_any_buffer_is_known(address):
    with fails("out_of_bounds"):
        launch(written(f"{HEAD} mov.b64 %w1, {address}; ld.global.b8 %h1, [%w1];"), [data(64)] * 2)
