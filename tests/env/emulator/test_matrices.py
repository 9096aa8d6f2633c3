# SPDX-License-Identifier: Apache-2.0
"""Products of matrices against exact sums, with the PTX ISA's layouts, and matrices from shared memory."""

import contextlib
import itertools

import numpy as np
import pytest

from tests.env.emulator.ptx import aligned, entry, fails, launch
from tests.env.emulator.rounding import BF16, F16, F32, F64, eight
from tests.tiers import one_of_each
from verl_kernel.env.emulator.errors import NotKnown
from verl_kernel.env.emulator.kernel import Kernel, Watch

WIDTHS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "f64": 64}
BYTES, EIGHTS = ("s8", "u8"), ("e4m3", "e5m2")
SHAPES = [
    *((f"m16n8k{depth}", "f16", "f16", total) for total in ("f32", "f16") for depth in (8, 16)),
    *((f"m16n8k{depth}", "bf16", "bf16", "f32") for depth in (8, 16)),
    *((f"m16n8k{depth}", "tf32", "tf32", "f32") for depth in (4, 8)),
    *((f"m16n8k{depth}", *pair, "s32") for pair in itertools.product(BYTES, BYTES) for depth in (16, 32)),
    *((f"m16n8k{depth}", *kinds) for kinds in itertools.product(EIGHTS, EIGHTS, ("f32", "f16")) for depth in (16, 32)),
    ("m8n8k4", "f64", "f64", "f64"),
]  # fmt: skip
CODED = {"f32": F32.rounded, "f16": F16.rounded, "f64": F64.rounded, "s32": lambda item: item & 0xFFFFFFFF}


def numbers(kind, shape, seed):
    """Small numbers that all sums hold exactly, and their bits."""
    random = np.random.default_rng(seed)
    if kind in BYTES:
        least = -128 if kind == "s8" else 0
        found = random.integers(least, least + 256, shape)
        return found.astype(object), (found & 255).astype(np.uint64)
    found = random.integers(-4, 5, shape).astype(object)
    if kind in EIGHTS:
        coded = {eight(kind, byte): byte for byte in range(255, -1, -1)}.get
    else:
        coded = {**CODED, "bf16": BF16.rounded, "tf32": F32.rounded}[kind]
    return found, np.vectorize(coded, otypes=[np.uint64])(found)


def places(lane, count, width, rows):
    """Where a lane's elements of a factor lie, in each of its registers: (row, place along k), by the ISA's figures."""
    per, found = 32 // width, []
    for register in range(count):
        row = (lane >> 2) + (8 * (register % rows) if rows > 1 else 0)
        found.append([(row, (lane & 3) * per + place + 4 * per * (register // rows)) for place in range(per)])
    return found


def packed(bits, lane, count, width, rows):
    registers = places(lane, count, width, rows)
    return [sum(int(bits[at]) << width * place for place, at in enumerate(register)) for register in registers]


def written(shape, first, second, total, counts, mark=""):
    """A module with an `mma` on registers of lanes, which has so many of each matrix."""
    wide = total == "f64"
    names = [[f"%{letter}{place}" for place in range(count)] for letter, count in zip("abc", counts, strict=True)]
    size, kind = (8, "b64") if wide else (4, "b32")
    results = [f"%d{place}" for place in range(counts[2])]
    lines = ["ld.param.u64 %in, [p0]; ld.param.u64 %out, [p1]; mov.u32 %t, %tid.x;"]
    lines.append(f"mul.wide.u32 %off, %t, {size * sum(counts)}; add.u64 %in, %in, %off;")
    lines += [f"ld.global.{kind} {name}, [%in+{size * place}];" for place, name in enumerate(itertools.chain(*names))]
    groups = ", ".join("{" + ", ".join(group) + "}" for group in (results, *names))
    lines.append(f"mma.sync.aligned.{shape}.row.col{mark}.{total}.{first}.{second}.{total} {groups};")
    lines.append(f"mul.wide.u32 %off, %t, {size * counts[2]}; add.u64 %out, %out, %off;")
    lines += [f"st.global.{kind} [%out+{size * place}], {name};" for place, name in enumerate(results)]
    declared = f".reg .{kind} %a<4>, %b<4>, %c<4>, %d<4>; .reg .b64 %in, %out, %off; .reg .b32 %t;"
    return entry("\n".join([*lines, "ret;"]), 2, declared)


def product(shape, first, second, total, a, b, c, mark=""):
    dtype = np.uint64 if total == "f64" else np.uint32
    given = np.ascontiguousarray(np.concatenate([a, b, c], axis=1).astype(dtype))
    result = np.zeros((32, c.shape[1]), dtype)
    launch(written(shape, first, second, total, [a.shape[1], b.shape[1], c.shape[1]], mark), [given, result])
    return result


def laid_out(shape, first, second, total, a, b, c):
    """Matrices of bits as registers of lanes."""
    depth, width = int(shape.rpartition("k")[2]), WIDTHS[first]
    if total == "f64":
        wide = [[[int(m[lane >> 2, lane & 3])] for lane in range(32)] for m in (a, b.T)]
    else:
        count = depth * width // 128
        factors = ((a, 2 * count, 2), (b.T, count, 1))
        wide = [[packed(m, lane, number, width, rows) for lane in range(32)] for m, number, rows in factors]
    sums = [[int(c[place]) for place in sum_places(lane, total)] for lane in range(32)]
    if total == "f16":
        sums = [[row[0] | row[1] << 16, row[2] | row[3] << 16] for row in sums]
    return (np.array(item, np.uint64) for item in (*wide, sums))


def sum_places(lane, total):
    group, part = lane >> 2, lane & 3
    return [(row, 2 * part + place) for row in ((group,) if total == "f64" else (group, group + 8)) for place in (0, 1)]


@pytest.mark.parametrize("kinds", one_of_each(SHAPES, lambda kinds: (kinds[1], kinds[3])), ids="-".join)
def test_products_are_exact_sums(kinds):
    shape, first, second, total = kinds
    depth, height = int(shape.rpartition("k")[2]), 8 if total == "f64" else 16
    (x, a), (y, b) = numbers(first, (height, depth), 1), numbers(second, (depth, 8), 2)
    z, c = numbers(total, (height, 8), 3)
    found, wanted = product(*kinds, *laid_out(*kinds, a, b, c)), x.dot(y) + z
    for lane in range(32):
        row = [CODED[total](int(wanted[place])) for place in sum_places(lane, total)]
        if total == "f16":
            row = [row[0] | row[1] << 16, row[2] | row[3] << 16]
        assert [int(item) for item in found[lane]] == row, lane


@pytest.mark.parametrize("mark, wanted", [("", 0x80000000 + 16 * 127 * 127 - 1), (".satfinite", 0x7FFFFFFF)])
def test_integer_sums_wrap_or_saturate(mark, wanted):
    bits = np.full((16, 16), 127, np.uint64), np.full((16, 8), 127, np.uint64), np.full((16, 8), 0x7FFFFFFF, np.uint64)
    found = product("m16n8k16", "s8", "s8", "s32", *laid_out("m16n8k16", "s8", "s8", "s32", *bits), mark=mark)
    assert (found == wanted).all()


@pytest.mark.parametrize("opcode", [
    "m16n8k16.row.col.f32.f16.bf16.f32", "m16n8k4.row.col.f32.f16.f16.f32", "m16n8k32.row.col.f32.f16.f16.f32",
    "m16n8k16.row.col.satfinite.f32.f16.f16.f32", "m16n8k16.row.row.f32.f16.f16.f32", "m8n8k4.row.col.f32.f16.f16.f32",
    "m16n8k16.row.col.f32.f16.f16.f16", "m16n8k16.row.col.f32.tf32.tf32.f32", "m16n8k8.row.col.s32.s8.s8.s32",
])  # fmt: skip
def test_other_products_are_refused(opcode):
    registers = "{%r0, %r1, %r2, %r3}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%r0, %r1, %r2, %r3}"
    with pytest.raises(NotKnown):
        Kernel(entry(f"mma.sync.aligned.{opcode} {registers}; ret;", 0, ".reg .b32 %r<8>;"), 1, 0)


def staged(code):
    """A module whose lanes have each loaded a row of a matrix, for the place `%s` in shared memory."""
    return entry(
        "ld.param.u64 %in, [p0]; ld.param.u64 %out, [p1]; mov.u32 %t, %tid.x; mul.wide.u32 %off, %t, 16;"
        "cvt.u32.u64 %s, %off; add.u64 %in, %in, %off; add.u64 %out, %out, %off;"
        f"ld.global.v4.b32 {{%x0, %x1, %x2, %x3}}, [%in]; {code} ret;",
        2, ".reg .b32 %x<4>, %t, %s, %r, %z; .reg .b64 %in, %out, %off;",
    )  # fmt: skip


def matrices(count, mark, shift=0):
    names = [f"%x{place}" for place in range(count)]
    stores = "".join(f"st.global.b32 [%out+{4 * at}], {name};" for at, name in enumerate(names))
    return staged(
        f"st.shared.v4.b32 [%s], {{%x0, %x1, %x2, %x3}}; xor.b32 %s, %s, 32; add.u32 %s, %s, {shift};"
        f"ldmatrix.sync.aligned.m8n8.x{count}{mark}.shared.b16 {{{', '.join(names)}}}, [%s]; {stores}"
    )


def stored_matrices(count, mark, shift=0):
    names = ", ".join(f"%x{place}" for place in range(count))
    return staged(
        "mov.u32 %z, 0; st.shared.v4.b32 [%s], {%z, %z, %z, %z}; bar.sync 0; xor.b32 %r, %s, 32;"
        f"add.u32 %r, %r, {shift}; stmatrix.sync.aligned.m8n8.x{count}{mark}.shared.b16 [%r], {{{names}}}; bar.sync 0;"
        "ld.shared.v4.b32 {%x0, %x1, %x2, %x3}, [%s]; st.global.v4.b32 [%out], {%x0, %x1, %x2, %x3};"
    )


@pytest.mark.parametrize("mark", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("text", [matrices, stored_matrices])
def test_matrices_from_and_to_shared_memory(text, count, mark):
    numbers, words = aligned(512, np.uint16), aligned(512, np.uint32)
    arrays = [numbers, words] if text is matrices else [words, numbers]
    arrays[0].view(np.uint16)[:] = np.arange(256)
    launch(text(count, mark), arrays, shared=512)
    rows = numbers.reshape(32, 8)[np.arange(32) ^ 2].reshape(4, 8, 8)
    for number in range(count):
        assert (words.reshape(32, 4)[:, number] == halves(rows, number, mark)).all()
    assert text is matrices or not rows[count:].any()


def halves(rows, number, mark):
    """The two numbers of a matrix that each lane holds, in one word."""
    matrix = rows[number].T if mark else rows[number]
    return matrix.reshape(32, 2).astype(np.uint32) @ np.array([1, 1 << 16], np.uint32)


@pytest.mark.parametrize("text", [matrices, stored_matrices])
@pytest.mark.parametrize("shift, kind", [(8, "misaligned"), (1024, "out_of_shared")])
def test_rows_of_matrices_are_checked(text, shift, kind):
    with fails(kind):
        launch(text(4, "", shift), [aligned(512, np.uint16), aligned(512, np.uint32)], shared=1024)


@pytest.mark.parametrize("barrier, is_race", [("bar.sync 0;", False), ("", True)])
def test_stored_matrices_race(barrier, is_race):
    text = stored_matrices(4, "").replace("bar.sync 0;", barrier)
    arrays = [aligned(1024, np.uint32), aligned(1024, np.uint16)]
    arrays[0][:] = np.arange(256)
    with fails("race") if is_race else contextlib.nullcontext():
        launch(text.replace("xor.b32 %r, %s, 32", "xor.b32 %r, %s, 512"), arrays, warps=2, shared=1024, watch=Watch())
