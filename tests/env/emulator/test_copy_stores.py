# SPDX-License-Identifier: Apache-2.0
"""What stores are, read off the code and by the values of followed blocks; and kernels without some of them."""

import numpy as np
import pytest

from tests.env.emulator.ptx import aligned, counted, entry, kernel
from verl_kernel.env.emulator.code import make, read
from verl_kernel.env.emulator.copy_stores import Follow, moved_from, numbers
from verl_kernel.env.emulator.flow.origins import stores
from verl_kernel.env.emulator.kernel import Kernel
from verl_kernel.env.emulator.ptx.parser import parse
from verl_kernel.env.emulator.races.detector import Watch

HEAD = """
.reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .f32 %f<8>; .reg .pred %p<3>; .reg .b16 %h<3>;
.shared .align 16 .b8 room[1024]; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; mov.u32 %r7, %tid.x;
mul.wide.u32 %rd2, %r7, 4; add.u64 %rd0, %rd0, %rd2; add.u64 %rd1, %rd1, %rd2; ld.global.b32 %r1, [%rd0];
mov.b32 %f1, %r1;
"""
SAME, SUM = "st.global.b32 [%rd1], %r2;", "st.global.f32 [%rd1], %f2;"
POSITIVE, FROM_SHARED = "setp.gt.f32 %p1, %f1, 0f00000000;", "bar.sync 0; ld.shared.b32 %r2, [room];"
AT_DATA = "mul.wide.u32 %rd3, %r1, 4; add.u64 %rd3, %rd1, %rd3;"
KINDS = {
    "copied": ("mov.b32 %r2, %r1;" + SAME, "moves"),
    "shuffled": ("shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;" + SAME, "moves"),
    "packed": ("cvt.rn.f16.f32 %h1, %f1; mov.b32 %r2, {%h1, %h1};" + SAME, "moves"),
    "through_shared": ("st.shared.b32 [room], %r1;" + FROM_SHARED + SAME, "moves"),
    "computed_in_shared": ("add.f32 %f2, %f1, %f1; st.shared.f32 [room], %f2;" + FROM_SHARED + SAME, "computes"),
    "added": ("add.f32 %f2, %f1, 0f00000000;" + SUM, "computes"),
    "clipped": ("max.f32 %f2, %f1, 0f00000000;" + SUM, "computes"),
    "absolute": ("and.b32 %r2, %r1, 2147483647;" + SAME, "computes"),
    "absolute_in_hex": ("and.b32 %r2, %r1, 0x7FFFFFFF;" + SAME, "computes"),
    "low_half": ("and.b32 %r2, %r1, 65535;" + SAME, "computes"),
    "two_in_one": ("shl.b32 %r2, %r1, 16; or.b32 %r2, %r2, %r1;" + SAME, "computes"),
    "chosen_by_data": (POSITIVE + "selp.b32 %r2, %r1, 0, %p1;" + SAME, "computes"),
    "chosen_by_place": ("setp.lt.u32 %p1, %r7, 3; selp.b32 %r2, %r1, 0, %p1;" + SAME, "moves"),
    "written_where_data_say": (POSITIVE + "mov.b32 %r2, 0; @%p1 mov.b32 %r2, %r1;" + SAME, "computes"),
    "masked_by_data": (POSITIVE + "@%p1 st.global.b32 [%rd1], %r1;", "moves"),
    "one": ("mov.b32 %r2, 7;" + SAME, "constant"),
    "index": ("add.u32 %r2, %r7, 1;" + SAME, "computes"),
    "loop": ("mov.b32 %f2, 0f00000000; mov.u32 %r3, 0;\nLOOP:\nst.global.f32 [%rd1], %f2; add.f32 %f2, %f2, %f1;"
             "add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 4; @%p1 bra LOOP;", "computes"),
    "steps_that_data_end": (
        "mov.u32 %r3, 0;\nLOOP:\nadd.u32 %r3, %r3, 1; ld.global.b32 %r1, [%rd0]; setp.ne.u32 %p1, %r1, %r3;"
        "@%p1 bra LOOP;" + SAME.replace("%r2", "%r3"), "computes",
    ),
    "flag_a_branch_sets": (POSITIVE + "mov.b32 %r2, 0; @%p1 bra SKIP; mov.b32 %r2, 7;\nSKIP:\n" + SAME, "computes"),
    "one_where_data_say": (POSITIVE + "@%p1 bra SKIP; mov.b32 %r2, 7; " + SAME + "\nSKIP:", "computes"),
    "copied_where_data_say": (POSITIVE + "@%p1 bra SKIP; " + SAME.replace("%r2", "%r1") + "\nSKIP:", "moves"),
    "copied_until_data_end": (
        "\nLOOP:\nld.global.b32 %r1, [%rd0]; st.global.b32 [%rd1], %r1; add.u64 %rd0, %rd0, 4; add.u64 %rd1, %rd1, 4;"
        "setp.ne.u32 %p1, %r1, 0; @%p1 bra LOOP;", "moves",
    ),
    "counted_in_shared": (
        "mov.u32 %r3, room; shl.b32 %r4, %r1, 2; add.u32 %r3, %r3, %r4; red.shared.add.u32 [%r3], 1;" + FROM_SHARED
        + SAME, "computes",
    ),
    "one_in_shared": ("red.shared.add.u32 [room], 1;" + FROM_SHARED + SAME, "constant"),
    "atomic_sum": ("red.global.add.f32 [%rd1], %f1;", "computes"),
    "where_data_say": (AT_DATA + "st.global.b32 [%rd3], 1;", "computes"),
    "counted": (AT_DATA + "red.global.add.u32 [%rd3], 1;", "computes"),
    "atomic_one": ("red.global.add.u32 [%rd1], 1;", "constant"),
    "exchanged": ("atom.global.exch.b32 %r2, [%rd1], %r1;", "moves"),
}  # fmt: skip
TWO = "add.f32 %f2, %f1, %f1; st.global.f32 [%rd1], %f2; st.global.b32 [%rd1+128], %r1; st.global.b32 [%rd1+256], 7;"
VALUES = np.random.default_rng(1).standard_normal(64).astype(np.float32)
OWN = "mov.u32 %r6, %ctaid.x; mul.wide.u32 %rd3, %r6, 128; add.u64 %rd0, %rd0, %rd3; add.u64 %rd1, %rd1, %rd3;"
SPREAD = HEAD.replace("ld.global.b32 %r1, [%rd0];", OWN + "ld.global.b32 %r1, [%rd0];").replace("%rd<4>", "%rd<6>")
FLIPPED = "xor.b32 %r5, %r7, 31; sub.s32 %r5, %r5, %r7; mul.wide.s32 %rd4, %r5, 4; add.u64 %rd1, %rd1, %rd4;"
ORDERED, COUNT = np.sort(VALUES), np.arange(64)


def text(body: str) -> str:
    return entry(f"{body}\nret;", parameters=2, declarations=HEAD)


@pytest.mark.parametrize("body, kind", KINDS.values(), ids=KINDS)
def test_what_a_store_is(body, kind):
    assert list(stores(parse(text(body))).values()) == [kind]


def keeping(body, kinds):
    """A kernel without its stores of other kinds."""
    left_out = [number for number, kind in stores(parse(text(body))).items() if kind not in kinds]
    return Kernel.loaded(read(make(text(body), 1, 0, left_out).to_bytes()))


@pytest.mark.parametrize(("kept", "stored"), [
    (("computes", "moves", "constant"), (6.0, 3.0, 7)),
    (("moves", "constant"), (0.0, 3.0, 7)), (("constant",), (0.0, 0.0, 7)), ((), (0.0, 0.0, 0)),
])  # fmt: skip
def test_only_what_is_kept_is_stored(kept, stored):
    given, out = aligned(128, np.float32), aligned(384, np.float32)
    given[:] = 3.0
    counted(keeping(TWO, kept), [given, out])
    assert (out[0], out[32], out.view(np.int32)[64]) == stored


def test_an_atomic_that_is_left_out_still_loads():
    given, out = aligned(128, np.float32), aligned(256, np.float32)
    given[:], out[:] = 3.0, 5.0
    body = "atom.global.add.f32 %f2, [%rd1], %f1; st.global.f32 [%rd1+128], %f2;"
    counted(keeping(body, ("moves",)), [given, out])
    assert (out[0], out[32]) == (5.0, 5.0)


def spread(body):
    return kernel(entry(f"{body}\nret;", 2, SPREAD))


def followed(body, *, given=VALUES, **more):
    seen, _, out = launched(body, given, 2, **more)
    return seen, out


def launched(body, given, blocks, *, kinds=("fp32", "fp32"), start=0.0, **more):
    """What is seen of the only store of a kernel, what is counted, and what it has stored."""
    source, out = aligned(4 * given.size, np.float32), aligned(4 * given.size, np.float32)
    source[:], out[:] = given.ravel(), start
    follow = Follow(kinds, np.random.default_rng(0))
    count = counted(spread(body), [source, out], blocks, follow=follow, **more)
    (seen,) = follow.seen.values()
    return seen, count, out


MOVING = {
    "plus_zero": "add.f32 %f2, %f1, 0f00000000;" + SUM,
    "times_nearly_one": "mul.f32 %f2, %f1, 0f3F800003;" + SUM,
    "plus_next_to_nothing": "add.f32 %f2, %f1, 0f38000000;" + SUM,
    "changed_in_the_fifth_digit": "mul.f32 %f2, %f1, 0f3F800200;" + SUM,
    "larger_of_itself": "max.f32 %f2, %f1, %f1;" + SUM,
    "out_and_back": "add.f32 %f2, %f1, %f1; mul.f32 %f2, %f2, 0f3F000000;" + SUM,
    "turned_round": FLIPPED + "add.f32 %f2, %f1, 0f00000000;" + SUM,
    "added_to_zeros": "red.global.add.f32 [%rd1], %f1;",
    "one_block_only": "mul.f32 %f2, %f1, 0f3F800002; setp.eq.u32 %p1, %r6, 0; selp.f32 %f2, %f2, %f1, %p1;" + SUM,
}  # fmt: skip
COMPUTING = {
    "doubled": "add.f32 %f2, %f1, %f1;" + SUM,
    "clipped": "max.f32 %f2, %f1, 0f00000000;" + SUM,
    "negated": "neg.f32 %f2, %f1;" + SUM,
    "changed_in_the_third_digit": "mul.f32 %f2, %f1, 0f3F80A000;" + SUM,
    "neighbours_larger": "shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1; mov.b32 %f2, %r2; max.f32 %f2, %f1, %f2;" + SUM,
}


@pytest.mark.parametrize("name", [*MOVING, *COMPUTING])
def test_what_equals_a_load_moves_and_what_differs_computes(name):
    seen, _ = followed({**MOVING, **COMPUTING}[name])
    assert (seen.stored, seen.moved) == (256, 256 if name in MOVING else 0)
    assert not seen.is_single


def test_zeros_of_zeros_tell_nothing():
    """As in a batch that is padding: doubled or copied, it is zeros."""
    seen, _ = followed(COMPUTING["doubled"], given=np.where(np.arange(64) < 32, 0.0, VALUES).astype(np.float32))
    assert (seen.stored, seen.moved, seen.is_silent) == (128, 0, False)
    assert followed(COMPUTING["doubled"], given=np.zeros(64, np.float32))[0].is_silent


def test_zeros_of_other_numbers_tell():
    finite = "setp.lt.f32 %p1, %f1, 0f7F800000; selp.f32 %f2, {}, %p1;" + SUM
    seen, _ = followed(finite.format("0f00000000, %f1"))
    assert not seen.is_silent
    assert seen.moved == 0
    seen, _ = followed(finite.format("0f40000000, 0f3F800000"))
    assert seen.is_single
    assert np.frombuffer(seen.value, np.float32) == 2.0
    assert seen.moved == 0


def test_an_atomic_on_what_is_there_computes():
    assert followed(MOVING["added_to_zeros"], start=1.0)[0].moved == 0


def test_bfloat16_is_read_as_such():
    given = (VALUES.view(np.uint32) & 0x3FFF3FFF).view(np.float32)
    body = "mov.b32 {%h0, %h1}, %r1; mov.b16 %h2, 0x3F80; mul.bf16 %h0, %h0, %h2; mul.bf16 %h1, %h1, %h2;"
    seen, _ = followed(body + "mov.b32 %r2, {%h0, %h1};" + SAME, kinds=("bf16", "bf16"), given=given)
    assert seen.moved == 256


@pytest.mark.parametrize("watch", [None, Watch()], ids=["alone", "watched"])
def test_what_is_followed_is_not_changed_by_it(watch):
    seen, out = followed(COMPUTING["doubled"], watch=watch)
    np.testing.assert_array_equal(out, 2 * VALUES)
    assert seen.stored == 256


@pytest.mark.parametrize(("last", "elements"), [(3.0, 16), (2.0, 60)], ids=["other values", "one value"])
def test_more_blocks_are_followed_where_each_stores_little(last, elements):
    """The larger of two numbers is the first of them in the first blocks by chance."""
    source = np.arange(2048).astype(np.float32).reshape(64, 32) % 2
    source[2:, :2] = (1.0, last)
    source[:2, :2] = (2.0, 1.0)
    body = "ld.global.f32 %f3, [%rd0+4]; max.f32 %f2, %f1, %f3; setp.eq.u32 %p1, %r7, 0; @%p1 " + SUM
    assert launched(body, source, 60)[0].elements == elements


@pytest.mark.parametrize(("condition", "is_scattered"), [
    (POSITIVE, True), ("setp.gt.f32 %p1, %f1, 0fFF000000;", False), ("setp.lt.u32 %p1, %r6, 3;", False),
], ids=["data", "always", "place"])  # fmt: skip
def test_one_value_tells_something_where_data_place_it(condition, is_scattered):
    given = np.random.default_rng(2).standard_normal(2048).astype(np.float32)
    seen, *_ = launched(f"{condition} mov.b32 %r2, 7; @%p1 {SAME}", given, 64)
    assert seen.is_single
    assert seen.is_scattered == is_scattered


def test_the_first_blocks_are_followed_in_whatever_order():
    seen, count, _ = launched(SUM, np.ones(2048), 64)
    assert seen.stored == 256
    assert sum(site.accesses for site in count.sites if site.site.item.root == "st") == 64 * 32
    _, _, out = launched(f"add.f32 %f2, %f1, %f1; {SUM}", np.ones(2048), 64, order=np.arange(64)[::-1])
    assert (out == 2.0).all()


@pytest.mark.parametrize(("stored", "loaded", "found"), [
    (VALUES, [VALUES[::-1], VALUES + 1], 0), (ORDERED, [VALUES], None), (ORDERED, [ORDERED], 0),
    (VALUES, [VALUES[:32], VALUES[32:]], 2), (VALUES[:32], [VALUES], 0), (VALUES[::2], [VALUES], 0),
    (np.repeat(VALUES[:4], 16), [VALUES[:4]], 0), (VALUES[:3], [VALUES], None), (COUNT, [VALUES], None),
    (VALUES.view(np.int32), [VALUES], 0), (VALUES, [VALUES.view(np.int32) + 1], 0),
    (COUNT.astype(np.int32), [VALUES], None), (VALUES.view(np.int32), [VALUES * 2], None),
    (COUNT, [COUNT], 0), (COUNT, [COUNT + 1], None), (VALUES, [], None), (VALUES, [VALUES[:0]], None),
])  # fmt: skip
def test_values_that_were_loaded(stored, loaded, found):
    assert moved_from(stored, "fp32" if stored.dtype.kind == "f" else "i64", loaded) == found


@pytest.mark.parametrize("kind, word", [("", np.uint16), ("fp16", np.float16), ("i16", np.int16), ("bf16", np.float32)])
def test_elements_of_a_type_that_is_not_known_are_bytes(kind, word):
    assert numbers(np.arange(8, dtype=np.uint8).reshape(4, 2), kind).dtype == word
