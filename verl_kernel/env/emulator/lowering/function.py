# SPDX-License-Identifier: Apache-2.0
"""Generates the LLVM module of a kernel."""

from __future__ import annotations

from dataclasses import dataclass

from verl_kernel.env.emulator.errors import NotKnown
from verl_kernel.env.emulator.flow.graph import CARRY, Graph, live
from verl_kernel.env.emulator.flow.repeats import Piece, Repeat, lanes, pieces, polls, repeats, resumed
from verl_kernel.env.emulator.flow.rounding import rounded_stores
from verl_kernel.env.emulator.library import context
from verl_kernel.env.emulator.lowering import comparisons, conversions, floats, integers, memory, moves  # noqa: F401
from verl_kernel.env.emulator.lowering.body import ALIVE, LANE_RANKS, Body, Frame, variable
from verl_kernel.env.emulator.lowering.control import NOWHERE, SLICE, Control, Loop
from verl_kernel.env.emulator.lowering.opcodes import lower
from verl_kernel.env.emulator.lowering.sites import Site
from verl_kernel.env.emulator.lowering.writer import LANES, WIDE, Key, lane_list
from verl_kernel.env.emulator.ptx.program import PtxProgram

MOST_LOCAL = 512 << 10
"""Bytes of local memory that a lane may have (CUDA C++ Programming Guide, "Technical Specifications")."""


@dataclass(frozen=True)
class Module:
    """LLVM IR of a kernel, and what is needed to launch it and to read its counters."""

    text: str
    library: tuple[Key, ...]
    """Functions of the library that it calls."""
    frame_bytes: int
    """Bytes of the frame of each warp."""
    may_diverge: bool
    """Whether lanes of a warp may diverge."""
    may_wait: bool
    """Whether blocks may wait for each other, so that several must run at once."""
    has_cross_block_sync: bool
    """Whether blocks may synchronise (`body.Order`)."""
    sites: list[Site]
    blocks: list[tuple[int, int]]
    """First instruction and end of each block that is counted."""
    polls: frozenset[int]
    """Numbers of those that only wait for other blocks of the launch (`flow.repeats.polls`)."""
    rounded: dict[int, frozenset[str]]
    """Numbers of the sites that store rounded values to shared memory, with the formats of these (`flow.rounding`)."""


def module(program: PtxProgram, warps: int) -> Module:
    """Lower a kernel (raises NotKnown).

    Args:
        program: the kernel.
        warps: warps of a block.
    """
    if program.local_bytes > MOST_LOCAL:
        raise NotKnown(f"a lane's local memory is of {program.local_bytes} bytes, and a GPU has {MOST_LOCAL}")
    graph = Graph(program)
    living, resumes = live(graph), resumed(graph)
    crossing = frozenset().union(*living)
    # Registers that outlive a block are variables, or lie in the frame where a warp resumes.
    body, frame = _body(graph, warps, crossing, frozenset().union(*(living[number] for number in resumes)))
    control = Control(body)
    repeated = repeats(graph, body.lanes, body.normal)
    frame.add(body.shapes(crossing & _touched(graph, repeated)))
    cuts, loops = _blocks(body, control, pieces(graph, living, repeated))
    control.end()
    # The head needs to know all variables, so it is written last and put first.
    code_lines, body.lines = body.lines, []
    _entry(body, resumes, crossing - frame.offsets.keys())
    for number in sorted(resumes):
        control.restore(number)
    if body.lanes.may_diverge:
        _resume_diverged(body)
    declared = [*body.calls.values(), *body.intrinsics.values()]
    tables = [table(name, data) for name, data in program.constants.items()] + [_pinned(cuts)] * bool(cuts)
    tables += [line for loop in loops for line in loop.tables]
    text = "\n".join([*tables, *body.lines, *code_lines, "}", *sorted(declared), ""])
    counted = [(block.start, block.end) for block in graph.blocks]
    return Module(
        text,
        tuple(body.calls),
        frame.bytes,
        body.lanes.may_diverge,
        control.may_wait,
        body.order.has_cross_block_sync,
        body.sites.all,
        counted,
        polls(graph),
        _rounded(program, body.sites.all),
    )


def _rounded(program: PtxProgram, sites: list[Site]) -> dict[int, frozenset[str]]:
    formats = {id(item): kinds for item, kinds in rounded_stores(program)}
    return {number: formats[id(site.item)] for number, site in enumerate(sites) if id(site.item) in formats}


def table(name: str, data: bytes) -> str:
    """Write a constant table, padded so that accesses of 32 bits that begin in its last bytes stay inside."""
    text = "".join(f"\\{byte:02X}" for byte in data + bytes(4))
    return f'@"{name}" = constant [{len(data) + 4} x i8] c"{text}", align 16'


def _body(graph: Graph, warps: int, crossing: frozenset[str], resumed: frozenset[str]) -> tuple[Body, Frame]:
    """Return an empty function and its frame, which holds registers that are read where a warp resumes.

    Where lanes may diverge, the frame holds all registers that outlive a block: as values they would need to be joined
    in the block that chooses the next one.
    """
    frame = Frame()
    body = Body(graph, lanes(graph), warps, crossing, frame)
    frame.add(body.shapes(crossing if body.lanes.may_diverge else resumed))
    return body, frame


def _touched(graph: Graph, repeated: list[list[Repeat]]) -> frozenset[str]:
    """Return the registers that repetitions read or write."""
    indices = [index for row in repeated for item in row for index in range(item.start, item.end)]
    return frozenset(name for index in indices for name in (*graph.writes[index], *graph.reads[index]))


def _blocks(body: Body, control: Control, blocks: list[list[Piece]]) -> tuple[list[str], list[Loop]]:
    """Lower all blocks; returns the labels at which they are cut, and the loops generated for repetitions."""
    cuts, loops = [], []
    for number, parts in enumerate(blocks):
        control.begin(number)
        has_branched = False
        for piece in parts:
            if piece is not parts[0]:
                cuts.append(f"C{piece.start}")
                body.do(f"br label %{cuts[-1]}")
                body.begin(cuts[-1])
            if piece.repeat is not None:
                loops.append(Loop(body, piece.repeat, piece.after))
            else:
                if piece is not parts[-1]:
                    body.frame.lend(body.shapes(piece.after - body.crossing))
                has_branched = _piece(body, control, number, piece)
            body.frame.take_back(piece.after if piece is not parts[-1] else frozenset())
        if not has_branched:
            following = number + 1
            body.do(f"br label %B{following}" if following < len(body.graph.blocks) else "br label %END")
    return cuts, loops


def _piece(body: Body, control: Control, number: int, piece: Piece) -> bool:
    """Lower a piece of a block; returns whether its last instruction determines where the kernel continues."""
    last = body.graph.blocks[number].end - 1
    for index in range(piece.start, piece.end):
        body.enter(index, piece.saved.get(index, frozenset()))
        if index == last and control.finish(number, body.item):
            return True
        lower(body)
    return False


def _pinned(labels: list[str]) -> str:
    """Write a table of pointers to blocks: without a pointer LLVM would merge each with its predecessor."""
    pointers = ", ".join(f"ptr blockaddress(@warp, %{label})" for label in labels)
    return f"@vk_pinned = constant [{len(labels)} x ptr] [{pointers}]"


def _entry(body: Body, resumes: frozenset[int], variables: frozenset[str]) -> None:
    """Write the function's head: its arguments, memory for registers, and the jump to where it begins or resumes."""
    words = WIDE.ints(32)
    # `noalias`: what the kernel stores to tensors does not change its context and frame.
    body.lines.append(
        "define i32 @warp(ptr noalias %ctx, ptr noalias %frame, i32 %warpid, i32 %ctaid_x, i32 %ctaid_y, "
        "i32 %ctaid_z, i32 %resume) nounwind {\nentry:"
    )
    for name, word in (
        ("params", context.PARAMETERS),
        ("sites", context.SITES),
        ("counts", context.COUNTS),
        ("fuel", context.FUEL),
    ):
        body.do(f"%{name} = load ptr, ptr {body.word('%ctx', word)}")
    for name, word in zip("xyz", (context.GRID_X, context.GRID_Y, context.GRID_Z), strict=True):
        body.do(f"%nctaid_{name} = load i32, ptr {body.word('%ctx', word)}")
    first = body.op(f"mul i32 %warpid, {LANES}")
    body.do(f"%laneid = add {words} zeroinitializer, {lane_list(lambda lane: lane)}")
    body.do(f"%tid_x = add {words} %laneid, {body.splat('i32', first)}")
    # Variables, which LLVM turns into values (`code._promote`).
    body.do("%turns = alloca i32")
    body.do(f"store i32 {SLICE}, ptr %turns")
    for name in sorted(variables):
        body.do(f"{variable(name)} = alloca {body.register_type(name)}, align 64")
        if name == CARRY:
            body.do(f"store {words} zeroinitializer, ptr {variable(name)}")
    if body.lanes.may_diverge:
        for line in (
            "%active = alloca i32",
            f"%places = getelementptr i8, ptr %frame, i64 {LANE_RANKS}",
            "%next = alloca i32",
            "%waiting = alloca i1",
            "%alive = alloca i32",
            "store i1 false, ptr %waiting",
            "store i32 -1, ptr %active",
            "store i32 -1, ptr %alive",
        ):
            body.do(line)
    count = len(body.graph.blocks)
    # 0 is the start; a warp that has returned hands back the number that it returned.
    cases = [f"i32 {number}, label %RESUME{number}" for number in sorted(resumes)]
    if body.lanes.may_diverge:
        cases.append(f"i32 {count + 1}, label %RESUME_PARTED")
    body.do(f"switch i32 %resume, label %START [{' '.join(cases)}]")
    body.label("START")
    if body.lanes.may_diverge:
        body.do(f"store {words} {WIDE.const(32, NOWHERE)}, ptr %places")
    body.do("br label %B0")


def _resume_diverged(body: Body) -> None:
    """Resume each lane at the block that it waits for."""
    body.label("RESUME_PARTED")
    alive = body.op(f"load i32, ptr {body.op(f'getelementptr i8, ptr %frame, i64 {ALIVE}')}")
    body.do(f"store i32 {alive}, ptr %alive")
    body.do("br label %schedule")
