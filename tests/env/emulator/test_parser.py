# SPDX-License-Identifier: Apache-2.0
"""What is read of PTX; and what the emulator does not know, it refuses, quoting the instruction."""

import re

import pytest

from tests.env.emulator.ptx import entry
from tests.tiers import thinned
from verl_kernel.env.emulator.errors import NotKnown
from verl_kernel.env.emulator.kernel import Kernel
from verl_kernel.env.emulator.lowering.opcodes import OPCODES
from verl_kernel.env.emulator.ptx import program
from verl_kernel.env.emulator.ptx.parser import parse
from verl_kernel.env.emulator.ptx.program import Address, Immediate, OperandGroup, Pair, Register

HEAD = ".version 8.7\n.target sm_89\n.address_size 64\n"


def kernel(body, head="", parameters=".param .u64 .ptr .global .align 1 k_param_0,\n.param .u32 k_param_1"):
    return parse(f"{HEAD}{head}\n.visible .entry k(\n{parameters}\n)\n.reqntid 32\n{{\n{body}\nret;\n}}\n")


def first(body, declared="%r<9>"):
    return kernel(f".reg .b32 {declared}; .reg .pred %p<4>; .reg .b64 %rd<4>;\n{body}").instructions[0]


@pytest.mark.parametrize(
    "text",
    [
        "st.shared.b32 [%r1], %r2;",
        "ld.shared.v2.b32 {%r1, %r2}, [%r3];",
        "atom.shared.add.u32 %r1, [%r2], %r3;",
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r2];",
        "cp.async.cg.shared.global [%r1], [%rd1], 16;",
    ],
)
def test_shared_memory_has_two_names(text):
    longer, shorter = first(text.replace("shared", "shared::cta")), first(text)
    assert (longer.opcode, longer.operands) == (shorter.opcode, shorter.operands)


def test_what_is_declared_has_a_place():
    assert [(item.name, item.type, item.offset) for item in kernel("").parameters] == [
        ("k_param_0", "u64", 0), ("k_param_1", "u32", 8),
    ]  # fmt: skip
    made = kernel("", parameters=".param .u32 a,\n.param .align 64 .b8 b[128]")
    assert (made.parameters[1].offset, made.parameters[1].bytes, made.parameter_bytes) == (64, 128, 192)
    assert set(kernel(".reg .b32 %r<3>;").registers) == {"%r0", "%r1", "%r2", "%r3"}
    made = kernel(".local .align 4 .b8 depot[28];")
    assert (made.local, made.local_bytes) == ({"depot": 0}, 28)
    head = ".extern .shared .align 16 .b8 rest[];\n.visible .shared .align 8 .b8 front[8];"
    made = kernel(".shared .align 8 .b8 part[20];", head=head)
    assert (made.shared, made.shared_bytes) == ({"front": 0, "part": 8, "rest": 32}, 32)
    made = kernel("", head=".global .align 4 .b32 table[2] = {1, -1};")
    assert made.constants["table"] == bytes([1, 0, 0, 0, 255, 255, 255, 255])
    assert kernel(".reg .b32 %r<2>;\nmov.b32 %r1, 0;\n$L1:\nmov.b32 %r1, 1;").labels["$L1"] == 1


@pytest.mark.parametrize(("text", "operands"), [
    ("add.s32 %r1, %r2, -3", (Register("%r1"), Register("%r2"), Immediate("-3"))),
    ("mov.u32 %r1, %tid.x", (Register("%r1"), program.Special("%tid.x"))),
    ("mov.b32 %r1, 0f3F800000", (Register("%r1"), Immediate("0f3F800000"))),
    ("ld.global.v2.b32 {%r1, %r2}, [%rd1 + -8]",
     (OperandGroup((Register("%r1"), Register("%r2"))), Address(Register("%rd1"), -8))),
    ("shfl.sync.bfly.b32 %r1|%p1, %r2, 1, 31, -1",
     (Pair(Register("%r1"), Register("%p1")), Register("%r2"), *map(Immediate, ("1", "31", "-1")))),
    ("vote.sync.any.pred %p1, !%p2, -1", (Register("%p1"), program.Not(Register("%p2")), Immediate("-1"))),
    ("mov.b64 {_, %r1}, %rd1", (OperandGroup((program.Unused(), Register("%r1"))), Register("%rd1"))),
    ("ld.param.b32 %r1, [k_param_1]", (Register("%r1"), Address(program.Symbol("k_param_1"), 0))),
])  # fmt: skip
def test_operands(text, operands):
    assert first(text + ";").operands == operands


def test_an_instruction_has_a_guard_and_a_line_of_the_source():
    item = first("@!%p1 bra $L1;\n$L1:")
    assert (item.guard, item.is_negated, item.opcode) == (Register("%p1"), True, "bra")
    made = kernel(".reg .b32 %r<2>;\n.loc 1 12 4 // k.py:12:4\nmov.b32 %r1, 0;", head='.file 1 "/x" "k.py"')
    assert made.instructions[0].source_line == program.SourceLine(1, 12)
    assert made.files[1] == "/x/k.py"


def test_registers_of_an_inner_scope_are_others():
    made = kernel(".reg .b32 %r<2>;\nmov.b32 %r1, 0;\n{ .reg .b32 %r1; mov.b32 %r1, 7; }\nmov.b32 %r1, 2;")
    names = [item.operands[0].name for item in made.instructions[:3]]
    assert names[0] == names[2] != names[1]


def test_a_call_becomes_the_body_of_its_function():
    function = """.func (.param .b32 back) f(.param .b32 f_param_0)\n{\n.reg .b32 %r<3>;\nld.param.b32 %r1, [f_param_0];
add.s32 %r2, %r1, 1;\nst.param.b32 [back], %r2;\nret;\n}\n"""
    made = kernel(
        ".reg .b32 %r<3>;\nmov.b32 %r1, 5;\n{\n.param .b32 p0;\n.param .b32 r0;\nst.param.b32 [p0], %r1;\n"
        "call.uni (r0), f, (p0);\nld.param.b32 %r2, [r0];\n}",
        head=function,
    )
    opcodes = " ".join(item.opcode for item in made.instructions)
    assert opcodes == "mov.b32 mov.b32 mov.b32 add.s32 mov.b32 bra mov.b32 ret"
    handed, added = made.instructions[1], made.instructions[3]
    assert made.instructions[2].operands[1] == handed.operands[0]
    assert added.operands[1] == made.instructions[2].operands[0]


@pytest.mark.parametrize(("body", "head", "words"), [
    ("frobnicate.b32 %q1, %q2;", "", "%q1"),
    (".weird 3;", "", ".weird"),
    (".reg .b99 %r<3>;", "", ".b99"),
    (".reg .b64 %rd<2>;\nld.global.b32 %rd1, [%rd1 * 2];", "", "[%rd1 * 2]"),
    ("{\ncall.uni f, ();\n}", ".func f()\n{\n{\ncall.uni f, ();\n}\nret;\n}\n", "call themselves"),
])  # fmt: skip
def test_what_has_no_reading_is_quoted(body, head, words):
    with pytest.raises(NotKnown, match=re.escape(words)):
        kernel(body, head)


def test_modules_hold_one_kernel():
    with pytest.raises(NotKnown, match="has 0"):
        parse(HEAD)


REGISTERS = (
    ".reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<12>; .reg .b64 %w<4>; .reg .b32 %never; .local .b32 depot[4];"
    ".shared .b32 box[64];"
)
KNOWN = """
dp4a.s32.u32 %r1, %r2, %r3, %r4|sad.s32 %r1, %r2, %r3, %r4|slct.b32.s32 %r1, %r2, %r3, %r4|set.lt.u32.f32 %r1, %r2, %r3
add.s32 %r1, %r2, %r3|sub.f32 %r1, %r2, %r3|mul.lo.s32 %r1, %r2, %r3|mul.f16x2 %r1, %r2, %r3|add.cc.u32 %r1, %r2, %r3
addc.u32 %r1, %r2, %r3|subc.u32 %r1, %r2, %r3|mad.lo.s32 %r1, %r2, %r3, %r4|madc.hi.u32 %r1, %r2, %r3, %r4
and.b32 %r1, %r2, %r3|or.pred %p1, %p2, %p3|xor.b64 %w1, %w2, %w3|not.b32 %r1, %r2|cnot.b32 %r1, %r2
div.s32 %r1, %r2, %r3|div.full.f32 %r1, %r2, %r3|rem.u32 %r1, %r2, %r3|min.s32 %r1, %r2, %r3|max.f32 %r1, %r2, %r3
abs.s32 %r1, %r2|neg.f32 %r1, %r2|setp.lt.s32 %p1, %r2, %r3|setp.ltu.f32 %p1, %r2, %r3|selp.b32 %r1, %r2, %r3, %p1
shl.b32 %r1, %r2, 3|shr.s32 %r1, %r2, 3|shf.l.wrap.b32 %r1, %r2, %r3, %r4|bfe.u32 %r1, %r2, 3, 4
bfi.b32 %r1, %r2, %r3, 3, 4|prmt.b32 %r1, %r2, %r3, %r4|lop3.b32 %r1, %r2, %r3, %r4, 17|clz.b32 %r1, %r2
popc.b32 %r1, %r2|brev.b32 %r1, %r2|bfind.u32 %r1, %r2|cvt.rn.f32.s32 %r1, %r2|cvt.rzi.s32.f32 %r1, %r2
cvt.rn.f16.f32 %h1, %r1|cvt.rn.bf16x2.f32 %r1, %r2, %r3|cvt.rna.tf32.f32 %r1, %r2|cvt.u64.u32 %w1, %r1
cvt.rn.satfinite.e4m3x2.f32 %h1, %r1, %r2|cvt.rn.f16x2.e5m2x2 %r1, %h1|fma.rn.f32 %r1, %r2, %r3, %r4
copysign.f32 %r1, %r2, %r3|testp.finite.f32 %p1, %r1|sqrt.rn.f32 %r1, %r2|rcp.approx.f32 %r1, %r2
rsqrt.approx.f32 %r1, %r2|ex2.approx.f32 %r1, %r2|lg2.approx.f32 %r1, %r2|sin.approx.f32 %r1, %r2
cos.approx.f32 %r1, %r2|tanh.approx.f32 %r1, %r2|ld.global.b32 %r1, [%w1]|ld.shared.b32 %r1, [box]
ld.param.u64 %w1, [p0]|ld.local.b32 %r1, [depot]|st.global.b32 [%w1], %r1|cp.async.ca.shared.global [%r1], [%w1], 4
cp.async.commit_group
cp.async.wait_group 0|atom.global.add.u32 %r1, [%w1], %r2|red.global.add.u32 [%w1], %r2
ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r2]|stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r2}
mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%r6}, {%r0, %r1, %r2, %r3}
mov.b32 %r1, %r2|cvta.to.global.u64 %w1, %w2|shfl.sync.bfly.b32 %r1, %r2, 1, 31, -1|vote.sync.ballot.b32 %r1, %p1, -1
redux.sync.add.s32 %r1, %r2, -1|bar.warp.sync -1|bar.sync 0|barrier.sync 0|activemask.b32 %r1
createpolicy.fractional.L2::evict_first.b64 %w1, 1.0|membar.gl|fence.acq_rel.gpu|prefetch.global.L2 [%w1]
discard.global.L2 [%w1], 128|griddepcontrol.wait|nanosleep.u32 100|applypriority.global.L2::evict_normal [%w1], 128
bra.uni END|ret|exit|trap
"""
INSTRUCTIONS = [item.strip() for line in KNOWN.strip().splitlines() for item in line.split("|")]


def compiled(instruction):
    return Kernel(entry(f"{instruction};\nEND: ret;", 1, REGISTERS), 1, 0)


def test_every_opcode_of_the_lowering_is_here():
    assert {item.partition(" ")[0].partition(".")[0] for item in INSTRUCTIONS} >= set(OPCODES)


@pytest.mark.parametrize("instruction", thinned(INSTRUCTIONS, 3))
def test_an_unknown_modifier_is_refused(instruction):
    compiled(instruction)
    opcode, _, operands = instruction.partition(" ")
    root, _, modifiers = opcode.partition(".")
    kept = f".{modifiers}" if modifiers else ""
    for other in (f"{root}.unheard{kept}", f"{opcode}.unheard"):
        with pytest.raises(NotKnown) as caught:
            compiled(f"{other} {operands}".strip())
        assert f"`{f'{other} {operands}'.strip()}`" in str(caught.value)


UNKNOWN = [
    "dp2a.lo.u32.u32 %r1, %r2, %r3, %r4", "brkpt", "match.any.sync.b32 %r1, %r2, -1", "elect.sync %r1|%p1, -1",
    "wgmma.fence.sync.aligned", "mbarrier.init.shared.b64 [%r1], 1", "unheard.of %r1",
]  # fmt: skip
WITHOUT_A_DEFINITION = [
    "add.sat.u32 %r1, %r2, %r3", "mul.s32 %r1, %r2, %r3", "add.rz.f16 %h1, %h2, %h3",
    "rsqrt.rz.f32 %r1, %r2", "rcp.rz.f16 %h1, %h2", "add.ftz.bf16 %h1, %h2, %h3", "add.sat.f64 %w1, %w2, %w3",
    "min.f32 %r1, %r2, %r3, %r4", "min.xorsign.f32 %r1, %r2, %r3", "fma.rn.relu.f32 %r1, %r2, %r3, %r4",
    "setp.lt.ftz.bf16x2 %p1|%p2, %r1, %r2", "setp.lo.f32 %p1, %r1, %r2", "setp.ltu.s32 %p1, %r1, %r2",
    "setp.lt.ftz.s32 %p1, %r1, %r2", "ex2.f16x2 %r1, %r2",
    "slct.b32.f32 %r1, %r2, %r3, %r4", "sqrt.rn.s32 %r1, %r2", "rem.f32 %r1, %r2, %r3",
    "cvt.rm.f16.f32 %h1, %r1", "cvt.rz.f16.s64 %h1, %w1", "cvt.s32.f32 %r1, %r2",
    "cvt.rn.e4m3x2.f32 %h1, %r1, %r2", "cvt.rn.relu.satfinite.e4m3x2.f32 %h1, %r1, %r2",
    "bfe.u32 %r1, %r2, %r3, 4", "bfi.b32 %r1, %r2, %r3, %r4, 1", "prmt.b32.f4e %r1, %r2, %r3, %r4",
    "ld.b32 %r1, [%w1]", "st.b32 [%w1], %r1", "ld.global.b128 %w1, [%w2]", "ld.global.b32 %r1, %w1",
    "redux.sync.min.f32 %r1, %r2, -1", "redux.sync.add.s32 %r1, %r2, 1", "redux.sync.add.s32 %r1, %r2, %r3",
    "shfl.sync.bfly.b32 %r1, %r2, 1, 31, 0xFFFF", "shfl.bfly.b32 %r1, %r2, 1, 31", "vote.sync.any.pred %p1, %p2, 3",
    "bar.warp.sync 1", "@%p1 shfl.sync.bfly.b32 %r1, %r2, 1, 31, -1", "@%p1 bar.warp.sync -1", "@%p1 bar.sync 0",
    "bar.sync 0, 64", "bar.red.popc.u32 %r1, 0, %p1", "bar.arrive 0, 64", "mov.u32 %r1, %clock", "mov.u32 %r1, %smid",
    "mov.u32 %r1, %lanemask_lt", "mov.u32 %r1, nothing", "bra NOWHERE", "add.s32 %r1, %r2", "mov.u32 5, %r1",
    "atom.global.add.u32 %r1, [%w1], {%r2, %r3}", "cp.async.bulk.commit_group",
    "cp.async.ca.shared.global [%r1], [%w1], %r2", "sub.u16x2 %r1, %r2, %r3",
    "abs.s16x2 %r1, %r2", "cvta.shared.u64 %w1, %w2",
]  # fmt: skip
WRONG_NUMBERS = [
    "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r0, %r1, %r2, %r3}, {%r4}, {%r6}, {%r0, %r1, %r2, %r3}",
    "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r0, %r1}, {%r4, %r5}, {%r6}, {%r0, %r1}",
    "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1}, [%r2]", "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r1], {%r2}",
    "ld.global.v2.b32 {%r1, %r2, %r3, %r4}, [%w1]",
    "ld.global.v4.b32 %r1, [%w1]", "st.global.v4.b32 [%w1], {%r1, %r2}", "st.global.b32 [%w1], {%r1, %r2}",
    "atom.global.v2.add.f32 {%r1, %r2, %r3, %r4}, [%w1], {%r5, %r6}",
]  # fmt: skip
MASKS = ["mov.b32 %r3, 3", "mov.b32 %r3, -1; mov.b32 %r3, 3", "@%p1 mov.b32 %r3, -1"]
REFUSED = [
    *((code, f"does not know `{code}`") for code in UNKNOWN),
    *((code, f"`{code}`") for code in WITHOUT_A_DEFINITION),
    *((code, "registers") for code in WRONG_NUMBERS),
    *((code, "number") for code in ("bar.sync 0; bar.sync 1", "bar.sync %r1", "bar.sync 1; barrier.sync 0")),
    *((f"{mask}; redux.sync.add.s32 %r1, %r2, %r3", "its mask must name all lanes") for mask in MASKS),
]


@pytest.mark.parametrize(("code", "words"), REFUSED)
def test_what_is_not_known_is_refused(code, words):
    with pytest.raises(NotKnown, match=re.escape(words)):
        compiled(code)


def test_a_barrier_may_have_any_number_and_stand_twice():
    compiled("bar.sync 3; barrier.sync 3")
