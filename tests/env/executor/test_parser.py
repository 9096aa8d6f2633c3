# SPDX-License-Identifier: Apache-2.0
"""What is read of PTX, and what is refused."""

import pytest

from verl_kernel.env.executor.errors import NotKnown
from verl_kernel.env.executor.ptx.parser import parse
from verl_kernel.env.executor.ptx.program import (
    Address,
    Constant,
    Group,
    Not,
    Pair,
    Place,
    Register,
    Special,
    Symbol,
    Unused,
)

HEAD = ".version 8.7\n.target sm_89\n.address_size 64\n"


def kernel(body, head="", parameters=".param .u64 .ptr .global .align 1 k_param_0,\n.param .u32 k_param_1"):
    return parse(f"{HEAD}{head}\n.visible .entry k(\n{parameters}\n)\n.reqntid 32\n{{\n{body}\nret;\n}}\n")


def first(body, declared="%r<9>"):
    return kernel(f".reg .b32 {declared}; .reg .pred %p<4>; .reg .b64 %rd<4>;\n{body}").instructions[0]


def test_parameters_have_their_places():
    made = kernel("")
    assert [(item.name, item.type, item.offset) for item in made.parameters] == [
        ("k_param_0", "u64", 0),
        ("k_param_1", "u32", 8),
    ]


def test_an_array_of_parameters_is_aligned():
    made = kernel("", parameters=".param .u32 a,\n.param .align 64 .b8 b[128]")
    assert (made.parameters[1].offset, made.parameters[1].bytes, made.parameter_bytes) == (64, 128, 192)


def test_a_range_of_registers_is_declared():
    assert set(kernel(".reg .b32 %r<3>;").registers) == {"%r0", "%r1", "%r2", "%r3"}


@pytest.mark.parametrize(
    ("text", "operands"),
    [
        ("add.s32 %r1, %r2, -3", (Register("%r1"), Register("%r2"), Constant("-3"))),
        ("mov.u32 %r1, %tid.x", (Register("%r1"), Special("%tid.x"))),
        ("mov.b32 %r1, 0f3F800000", (Register("%r1"), Constant("0f3F800000"))),
        (
            "ld.global.v2.b32 {%r1, %r2}, [%rd1 + -8]",
            (Group((Register("%r1"), Register("%r2"))), Address(Register("%rd1"), -8)),
        ),
        (
            "shfl.sync.bfly.b32 %r1|%p1, %r2, 1, 31, -1",
            (Pair(Register("%r1"), Register("%p1")), Register("%r2"), *map(Constant, ("1", "31", "-1"))),
        ),
        ("vote.sync.any.pred %p1, !%p2, -1", (Register("%p1"), Not(Register("%p2")), Constant("-1"))),
        ("mov.b64 {_, %r1}, %rd1", (Group((Unused(), Register("%r1"))), Register("%rd1"))),
        ("ld.param.b32 %r1, [k_param_1]", (Register("%r1"), Address(Symbol("k_param_1"), 0))),
    ],
)  # fmt: skip
def test_operands(text, operands):
    assert first(text + ";").operands == operands


def test_a_guard_may_be_negated():
    item = first("@!%p1 bra $L1;\n$L1:")
    assert (item.guard, item.is_negated, item.opcode) == (Register("%p1"), True, "bra")


def test_a_label_names_the_instruction_behind_it():
    made = kernel(".reg .b32 %r<2>;\nmov.b32 %r1, 0;\n$L1:\nmov.b32 %r1, 1;")
    assert made.labels["$L1"] == 1


def test_registers_of_an_inner_scope_are_others():
    made = kernel(".reg .b32 %r<2>;\nmov.b32 %r1, 0;\n{ .reg .b32 %r1; mov.b32 %r1, 7; }\nmov.b32 %r1, 2;")
    names = [item.operands[0].name for item in made.instructions[:3]]
    assert names[0] == names[2] != names[1]


def test_lines_of_the_source_are_kept():
    made = kernel(".reg .b32 %r<2>;\n.loc 1 12 4 // k.py:12:4\nmov.b32 %r1, 0;", head='.file 1 "/x" "k.py"')
    assert made.instructions[0].place == Place(1, 12)
    assert made.files[1] == "/x/k.py"


def test_local_variables_have_places():
    made = kernel(".local .align 4 .b8 depot[28];")
    assert (made.local, made.local_bytes) == ({"depot": 0}, 28)


def test_shared_variables_have_places():
    head = ".extern .shared .align 16 .b8 rest[];\n.visible .shared .align 8 .b8 front[8];"
    made = kernel(".shared .align 8 .b8 part[20];", head=head)
    assert (made.shared, made.shared_bytes) == ({"front": 0, "part": 8, "rest": 32}, 32)


def test_tables_are_bytes():
    made = kernel("", head=".global .align 4 .b32 table[2] = {1, -1};")
    assert made.constants["table"] == bytes([1, 0, 0, 0, 255, 255, 255, 255])


def test_a_call_becomes_the_body_of_its_function():
    function = """.func (.param .b32 back) f(.param .b32 f_param_0)\n{\n.reg .b32 %r<3>;\nld.param.b32 %r1, [f_param_0];
add.s32 %r2, %r1, 1;\nst.param.b32 [back], %r2;\nret;\n}\n"""
    made = kernel(
        ".reg .b32 %r<3>;\nmov.b32 %r1, 5;\n{\n.param .b32 p0;\n.param .b32 r0;\nst.param.b32 [p0], %r1;\n"
        "call.uni (r0), f, (p0);\nld.param.b32 %r2, [r0];\n}",
        head=function,
    )
    assert [item.opcode for item in made.instructions] == [
        "mov.b32",
        "mov.b32",
        "mov.b32",
        "add.s32",
        "mov.b32",
        "bra",
        "mov.b32",
        "ret",
    ]
    handed, added = made.instructions[1], made.instructions[3]
    assert made.instructions[2].operands[1] == handed.operands[0]
    assert added.operands[1] == made.instructions[2].operands[0]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("frobnicate.b32 %q1, %q2;", "%q1"),
        (".weird 3;", ".weird"),
        (".reg .b99 %r<3>;", ".b99"),
        (".reg .b64 %rd<2>;\nld.global.b32 %rd1, [%rd1 * 2];", "[%rd1 * 2]"),
    ],
)  # fmt: skip
def test_what_has_no_reading_is_quoted(body, words):
    with pytest.raises(NotKnown) as caught:
        kernel(body)
    assert words in str(caught.value)


def test_a_function_that_calls_itself_is_refused():
    function = ".func f()\n{\n{\ncall.uni f, ();\n}\nret;\n}\n"
    with pytest.raises(NotKnown, match="call themselves"):
        kernel("{\ncall.uni f, ();\n}", head=function)


def test_modules_hold_one_kernel():
    with pytest.raises(NotKnown, match="has 0"):
        parse(HEAD)
