# SPDX-License-Identifier: Apache-2.0
"""What is known of a kernel before it runs: blocks, what lanes share, what is still read."""

from hypothesis import given
from hypothesis import strategies as st

from tests.env.executor.test_parser import kernel
from verl_kernel.env.executor.flow.graph import Graph, live
from verl_kernel.env.executor.flow.repeats import lanes

REGISTERS = ".reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .pred %p<4>;\n"


def graph(body):
    return Graph(kernel(REGISTERS + body))


def test_blocks_end_at_branches_barriers_and_labels():
    made = graph("mov.b32 %r1, 0;\n$L1:\nbar.sync 0;\nadd.s32 %r1, %r1, 1;\nsetp.lt.s32 %p1, %r1, 9;\n@%p1 bra $L1;")
    assert [(block.start, block.end, block.successors) for block in made.blocks] == [
        (0, 1, (1,)), (1, 2, (2,)), (2, 5, (1, 3)), (5, 6, ()),
    ]  # fmt: skip


def test_a_register_of_the_lane_is_not_shared():
    known = lanes(graph("mov.u32 %r1, %tid.x;\nadd.s32 %r2, %r1, 1;\nmov.u32 %r3, %ctaid.x;\nadd.s32 %r4, %r3, 1;"))
    assert {"%r3", "%r4"} <= known.uniform
    assert not {"%r1", "%r2"} & known.uniform


def test_a_branch_by_a_shared_predicate_does_not_part_lanes():
    body = "ld.param.b32 %r1, [k_param_1];\nsetp.eq.b32 %p1, %r1, 0;\n@%p1 bra $L1;\nmov.b32 %r2, 1;\n$L1:"
    assert not lanes(graph(body)).may_part


def test_a_branch_by_lane_parts_lanes_and_joins_them():
    body = "mov.u32 %r1, %tid.x;\nsetp.eq.b32 %p1, %r1, 0;\nmov.b32 %r2, 0;\n@%p1 bra $L1;\nmov.b32 %r2, 1;\n$L1:"
    known = lanes(graph(body))
    assert known.may_part
    assert "%r2" not in known.uniform


def test_what_shuffles_and_atomics_give_is_of_the_lane():
    known = lanes(graph("mov.b32 %r1, 0;\nshfl.sync.idx.b32 %r2, %r1, 0, 31, -1;\natom.global.add.u32 %r3, [%rd1], 1;"))
    assert not {"%r2", "%r3"} & known.uniform


@st.composite
def programs(draw):
    """Straight and branching code over four registers."""
    lines = []
    for number in range(draw(st.integers(2, 12))):
        lines.append(f"$L{number}:")
        a, b, c = (draw(st.integers(1, 4)) for _ in range(3))
        kind = draw(st.sampled_from(["add", "mov", "branch", "guarded"]))
        if kind == "add":
            lines.append(f"add.s32 %r{a}, %r{b}, %r{c};")
        elif kind == "mov":
            lines.append(f"mov.b32 %r{a}, {b};")
        elif kind == "guarded":
            lines.append(f"@%p{a % 3 + 1} mov.b32 %r{b}, %r{c};")
        else:
            lines.append(f"@%p{a % 3 + 1} bra $L{draw(st.integers(0, number))};")
    return "\n".join(lines)


@given(programs())
def test_what_is_still_read_is_what_some_path_reads_first(body):
    made = graph(body)
    found = live(made)
    for number, block in enumerate(made.blocks):
        for name in made.program.registers:
            assert (name in found[number]) == reads_first(made, block.start, name), (number, name)


def reads_first(made, place, name):
    """Walk all paths, instruction by instruction."""
    ends = {block.end - 1: block.successors for block in made.blocks}
    seen, waiting = set(), [place]
    while waiting:
        place = waiting.pop()
        if place in seen or place >= len(made.program.instructions):
            continue
        seen.add(place)
        if name in made.reads[place]:
            return True
        if name not in made.writes[place]:
            following = ends.get(place)
            starts = (
                [made.blocks[block].start for block in following if block < len(made.blocks)]
                if place in ends
                else [place + 1]
            )
            waiting += starts
    return False
