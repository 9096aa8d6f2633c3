# SPDX-License-Identifier: Apache-2.0
"""Lowers branches, barriers and ends.

Where lanes may diverge, each lane stores the rank of the block that it waits for (`flow.reconvergence`). The block with
the lowest rank runs first, with the lanes that wait for it, so that lanes reconverge at the first block that all of
them reach. Lanes at a barrier wait for the lanes that have not reached it yet.
"""

from __future__ import annotations

from collections.abc import Iterator

from verl_kernel.env.emulator.flow.reconvergence import ranks
from verl_kernel.env.emulator.flow.repeats import Repeat, may_wait
from verl_kernel.env.emulator.library import context
from verl_kernel.env.emulator.library.grid import ENDED, YIELDS
from verl_kernel.env.emulator.lowering.body import ALIVE, Body
from verl_kernel.env.emulator.lowering.moves import converged
from verl_kernel.env.emulator.lowering.opcodes import Modifiers, check, lower
from verl_kernel.env.emulator.lowering.writer import LANES, SCALAR, WIDE
from verl_kernel.env.emulator.ptx.program import Immediate, Instruction


class Loop:
    """Lowers a repetition of instructions to a loop that finds its registers by tables of offsets.

    Args:
        body: the function; registers that the repetition reads are in its frame.
        repeat: the instructions.
        after: registers that are read after it.
    """

    def __init__(self, body: Body, repeat: Repeat, after: frozenset[str]) -> None:
        self._body, self._repeat = body, repeat
        self._reads, self._writes = body.graph.reads, body.graph.writes
        self._once = range(repeat.start, repeat.start + repeat.period)
        self._round_names = {index: dict(self._names(index)) for index in self._once}
        """For each instruction of the first round, the names of its registers in all rounds, by their names in the
        first."""
        # If not, a register that is written in one round may be read under another name in a later one.
        self._is_alike = self._has_one_shape()
        self._needed = after | self._exposed()
        self._pointers: dict[tuple[int, ...], str] = {}
        self.tables: list[str] = []
        """Constants of the module."""
        self._lower(list(self._register_offsets(after)))

    def _names(self, index: int) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield each register of an instruction of the first round, with its names in all rounds."""
        rounds = range(index, self._repeat.end, self._repeat.period)
        for names in zip(
            *((*self._writes[round_index], *self._reads[round_index]) for round_index in rounds), strict=True
        ):
            yield names[0], names

    def _has_one_shape(self) -> bool:
        """Whether registers that are the same in the first round are the same in each round, and no others."""
        names_of: dict[str, tuple[str, ...]] = {}
        for row in self._round_names.values():
            for name, names in row.items():
                if names_of.setdefault(name, names) != names:
                    return False
        return all(len(set(names_of_round)) == len(names_of) for names_of_round in zip(*names_of.values(), strict=True))

    def _exposed(self) -> frozenset[str]:
        """Return registers, of all rounds, that a round reads before it writes them."""
        written: set[str] = set()
        exposed: set[str] = set()
        for index, row in self._round_names.items():
            exposed.update(*(row[name] for name in self._reads[index] if name not in written))
            written.update(self._writes[index])
        return frozenset(exposed)

    def _saved(self, index: int) -> frozenset[str]:
        """Return the results that an instruction must write to memory, by their names in the first round."""
        row = self._round_names[index]
        return frozenset(
            name for name in self._writes[index] if not self._is_alike or not self._needed.isdisjoint(row[name])
        )

    def _register_offsets(self, after: frozenset[str]) -> Iterator[dict[str, int]]:
        """Yield the offsets of each instruction's registers, in all rounds; offsets no longer read are reused."""
        frame, repeat = self._body.frame, self._repeat
        last = {name: index for index in range(repeat.start, repeat.end) for name in self._reads[index]}
        saved = {index: self._saved(index) for index in self._once}
        for index in range(repeat.start, repeat.end):
            round_number, offset = divmod(index - repeat.start, repeat.period)
            first = repeat.start + offset
            current_names = {name: names[round_number] for name, names in self._round_names[first].items()}
            offsets = {
                name: frame.offsets[current_names[name]]
                for name in self._reads[first]
                if current_names[name] in frame.offsets
            }
            read = [current_names[name] for name in offsets if name not in self._writes[first]]
            # An offset is free after the last read of its register, so a round can reuse it for its results.
            frame.free(name for name in read if last[name] == index and name not in after)
            frame.lend(self._body.shapes(current_names[name] for name in saved[first]))
            yield offsets | {name: frame.offsets[current_names[name]] for name in saved[first]}

    def _lower(self, offsets: list[dict[str, int]]) -> None:
        body, start, period = self._body, self._repeat.start, self._repeat.period
        head, label, following = f"H{start}", f"R{start}", f"%next{start}"
        body.do(f"br label %{head}")
        body.begin(head)
        body.do(f"br label %{label}")
        body.begin(label)
        round_number = body.op(f"phi i64 [ 0, %{head} ], [ {following}, %{label} ]")
        for index in self._once:
            rounds = offsets[index - start :: period]
            # All rounds share this code: only the offsets of registers differ.
            body.pointers = {
                name: self._pointer(tuple(row[name] for row in rounds), round_number) for name in rounds[0]
            }
            body.masked = frozenset(
                name for name, row in self._round_names[index].items() if not body.crossing.isdisjoint(row)
            )
            if not self._is_alike:
                body.forget()
            body.enter(index, self._saved(index))
            lower(body)
        body.pointers, body.masked = {}, body.crossing
        body.do(f"{following} = add i64 {round_number}, 1")
        has_next = body.op(f"icmp ult i64 {following}, {self._repeat.rounds}")
        body.do(f"br i1 {has_next}, label %{label}, label %E{start}")
        body.begin(f"E{start}")

    def _pointer(self, offsets: tuple[int, ...], round_number: str) -> str:
        """Return a pointer to a register in the current round."""
        body = self._body
        if offsets not in self._pointers:
            self._pointers[offsets] = body.op(
                f"getelementptr i8, ptr %frame, i64 {self._offset(offsets, round_number)}"
            )
        return self._pointers[offsets]

    def _offset(self, offsets: tuple[int, ...], round_number: str) -> str:
        """Return the offset of a register in the frame in the current round."""
        body, step = self._body, offsets[1] - offsets[0]
        # Offsets at equal distances need no table.
        if all(offset == offsets[0] + number * step for number, offset in enumerate(offsets)):
            return (
                body.op(f"add i64 {body.op(f'mul i64 {round_number}, {step}')}, {offsets[0]}")
                if step
                else str(offsets[0])
            )
        name = f"@vk_places_{self._repeat.start}_{len(self.tables)}"
        self.tables.append(
            f"{name} = constant [{len(offsets)} x i32] [{', '.join(f'i32 {offset}' for offset in offsets)}]"
        )
        at = body.op(f"getelementptr i32, ptr {name}, i64 {round_number}")
        return body.op(f"zext i32 {body.op(f'load i32, ptr {at}')} to i64")


NOWHERE = 2**31 - 1
"""Rank of the block that ended lanes wait for."""
SLICE = 64
"""Iterations of a loop that may wait for other warps, after which a warp lets the others run."""


class Control:
    """Lowers the ends of blocks of one kernel.

    Args:
        body: the function.
    """

    def __init__(self, body: Body) -> None:
        self._body = body
        self._end = len(body.graph.blocks)
        self._ranks = ranks([block.successors for block in body.graph.blocks])
        self._barriers: list[int] = []
        self._numbers: set[int] = set()
        self.may_wait = False
        """Whether some loop may wait for other warps."""

    def begin(self, number: int) -> None:
        """Begin a block: if lanes have diverged, lanes that reach it are queued."""
        body = self._body
        body.begin(f"B{number}")
        # Where lanes have parted, those that arrive queue up: a block of lower rank may have to run first.
        if body.lanes.may_diverge:
            waiting = body.op("load i1, ptr %waiting")
            body.do(f"br i1 {waiting}, label %Q{number}, label %X{number}")
            body.label(f"Q{number}")
            body.do(f"store i32 {self._ranks[number]}, ptr %next")
            body.do("br label %QUEUE")
            body.begin(f"X{number}")
            lanes = body.op(f"zext i32 {body.overloaded('ctpop', 'i32', body.active_bits())} to i64")
            body.add_to(body.op(f"getelementptr i64, ptr %counts, i64 {number + self._end + 1}"), "1")
        else:  # all lanes run together
            lanes = str(LANES)
        body.add_to(body.op(f"getelementptr i64, ptr %counts, i64 {number}"), lanes)

    def _wait_for(self, rank: str, lanes: str) -> None:
        """Make lanes wait for the block of a rank."""
        body, words = self._body, WIDE.ints(32)
        lane_ranks = body.op(f"load {words}, ptr %places")
        lane_ranks = body.op(f"select {WIDE.ints(1)} {lanes}, {words} {body.splat('i32', rank)}, {words} {lane_ranks}")
        body.do(f"store {words} {lane_ranks}, ptr %places")

    def finish(self, number: int, last: Instruction) -> bool:
        """Lower a block's last instruction if it is a branch, barrier or end; returns whether it was."""
        body = self._body
        if last.root == "bra":
            modifiers = Modifiers(last)
            modifiers.take("uni")
            modifiers.close()
            self._branch(number, last, body.graph.target(last))
        elif last.root in ("ret", "exit"):
            Modifiers(last).close()
            self._branch(number, last, self._end)
        elif last.root in ("bar", "barrier") and not last.opcode.startswith(("bar.warp", "barrier.warp")):
            self._barrier(number, last)
        elif last.root == "trap":
            Modifiers(last).close()
            self._fault(context.STOPPED, body.condition_bits(), "stop")
            body.do(f"br label %{self._label(number + 1 if last.guard else self._end)}")
        else:
            return False
        return True

    def _label(self, number: int) -> str:
        return f"B{number}" if number < self._end else "END"

    def _branch(self, number: int, item: Instruction, target: int) -> None:
        body = self._body
        yes, no = (target, number + 1) if not item.is_negated else (number + 1, target)
        # Only a jump backwards can repeat, so only these are counted: code without them ends.
        if target <= number:
            self._count_jump(number)
            if may_wait(body.graph, target, number):
                self.may_wait = True
                self._give_way(number, target, yes, no)
        if item.guard is None:
            body.do(f"br label %{self._label(target)}")
        elif item.guard.name in body.lanes.uniform:
            body.do(f"br i1 {body.read(item.guard, 1, SCALAR)}, label %{self._label(yes)}, label %{self._label(no)}")
        else:
            self._diverge(number, yes, no)

    def _diverge(self, number: int, yes: int, no: int) -> None:
        """Branch with all lanes if they agree, or make each lane wait for its block."""
        body = self._body
        active = body.active()
        taken = body.op(f"and {WIDE.ints(1)} {active}, {self._guard()}")
        taken_bits, all_bits = body.bits(taken), body.bits(active)
        body.do(
            f"br i1 {body.op(f'icmp eq i32 {taken_bits}, {all_bits}')}, label %{self._label(yes)}, label %N{number}"
        )
        body.label(f"N{number}")
        body.do(f"br i1 {body.op(f'icmp eq i32 {taken_bits}, 0')}, label %{self._label(no)}, label %D{number}")
        body.label(f"D{number}")
        self._wait_for_both(yes, no)
        body.do("br label %schedule")

    def _guard(self) -> str:
        """Return the guard of the current branch, not negated; true without a guard."""
        guard = self._body.item.guard
        return WIDE.const(1, 1) if guard is None else self._body.read(guard, 1, WIDE)

    def _wait_for_both(self, yes: int, no: int) -> None:
        """Make active lanes wait for one of two blocks, by the guard; lanes at the kernel's end have ended."""
        body, words = self._body, WIDE.ints(32)
        target_ranks = [WIDE.const(32, self._ranks[block] if block < self._end else NOWHERE) for block in (yes, no)]
        chosen = body.op(f"select {WIDE.ints(1)} {self._guard()}, {words} {target_ranks[0]}, {words} {target_ranks[1]}")
        lane_ranks = body.op(f"load {words}, ptr %places")
        lane_ranks = body.op(f"select {WIDE.ints(1)} {body.active()}, {words} {chosen}, {words} {lane_ranks}")
        body.do(f"store {words} {lane_ranks}, ptr %places")
        # Lanes at the end wait for nothing: barriers and shuffles must not count on them.
        if self._end in (yes, no):
            gone = body.op(f"icmp eq {words} {chosen}, {WIDE.const(32, NOWHERE)}")
            self._end_lanes(body.op(f"and {WIDE.ints(1)} {gone}, {body.active()}"))

    def _end_lanes(self, lanes: str) -> None:
        """Record that lanes have ended."""
        body = self._body
        alive = body.op(f"and i32 {body.op('load i32, ptr %alive')}, {body.op(f'xor i32 {body.bits(lanes)}, -1')}")
        body.do(f"store i32 {alive}, ptr %alive")

    def _count_jump(self, number: int) -> None:
        """Take one from the remaining backward jumps."""
        body = self._body
        jumps_left = body.op(f"sub i64 {body.op('load i64, ptr %fuel')}, 1")
        body.do(f"store i64 {jumps_left}, ptr %fuel")
        body.do(f"br i1 {body.op(f'icmp slt i64 {jumps_left}, 0')}, label %F{number}, label %G{number}")
        body.label(f"F{number}")
        self._fault(context.OUT_OF_FUEL, "1", "loop")
        body.do(f"ret i32 {ENDED}")
        body.label(f"G{number}")

    def _fault(self, kind: int, lanes: str, site_kind: str) -> None:
        body = self._body
        site = body.site(site_kind, 0)
        lane_addresses = f"{WIDE.ints(64)} zeroinitializer"
        body.do(body.call("void", ("fault",), f"i32 {kind}", f"i32 {lanes}", lane_addresses, "ptr %ctx", f"ptr {site}"))

    def _give_way(self, number: int, target: int, yes: int, no: int) -> None:
        """Return from the function after some iterations; the warp resumes at the loop's first block."""
        body = self._body
        turns_left = body.op(f"sub i32 {body.op('load i32, ptr %turns')}, 1")
        body.do(f"store i32 {turns_left}, ptr %turns")
        is_due = body.op(f"icmp eq i32 {turns_left}, 0")
        guard = body.item.guard
        if guard is not None and not body.lanes.may_diverge:
            is_due = body.op(f"and i1 {is_due}, {body.condition(SCALAR)}")
        # Both are computed here, as the code after the branch must not reuse values of a path that was not taken.
        body.active(), self._guard()
        body.do(f"br i1 {is_due}, label %Y{number}, label %Z{number}")
        body.label(f"Y{number}")
        if body.lanes.may_diverge:
            self._wait_for_both(yes, no)
            self._keep_alive()
            body.do(f"ret i32 {YIELDS + self._end + 1}")
        else:
            body.do(f"ret i32 {YIELDS + target}")
        body.label(f"Z{number}")

    def _keep_alive(self) -> None:
        """Store which lanes are alive; the ranks that lanes wait for are in the frame already."""
        body = self._body
        alive = body.op("load i32, ptr %alive")
        body.do(f"store i32 {alive}, ptr {body.op(f'getelementptr i8, ptr %frame, i64 {ALIVE}')}")

    def _barrier(self, number: int, item: Instruction) -> None:
        """Lower `bar.sync` for all warps of the block and all lanes of the warp."""
        check(item)
        body, modifiers = self._body, Modifiers(item)
        modifiers.take("cta")
        modifiers.need("sync")
        modifiers.take("aligned")
        modifiers.close()
        # A barrier that part of a block skips would have to count those that wait.
        if item.guard or len(item.operands) > 2:
            raise item.unknown("a barrier under a guard")
        self._check_number(item)
        if len(item.operands) == 2:
            threads = item.operands[1]
            if not isinstance(threads, Immediate) or body.literal(threads.text, 32) != LANES * body.warps:
                raise item.unknown("a barrier of a part of the block")
        if body.lanes.may_diverge:
            self._gather_at(number)
        converged(body)
        if body.lanes.may_diverge:
            self._keep_alive()
        body.do(f"ret i32 {number + 1}")

    def _check_number(self, item: Instruction) -> None:
        """Check that a barrier's number is a constant, the same in the whole kernel (raises NotKnown)."""
        if not item.operands or not isinstance(item.operands[0], Immediate):
            raise item.unknown("its number must be a constant")
        self._numbers.add(self._body.literal(item.operands[0].text, 32))
        if len(self._numbers) > 1:
            raise item.unknown("another barrier has another number")

    def _at_barrier(self, number: int) -> int:
        """Return the rank for which lanes wait at a block's final barrier; these follow the blocks and the end."""
        return self._end + 1 + number

    def _gather_at(self, number: int) -> None:
        """Make lanes wait for those that have not reached the barrier yet."""
        body = self._body
        self._barriers.append(number)
        # A barrier is for all lanes of the warp that have not ended: the first ones wait for the others.
        is_whole = body.op(f"icmp eq i32 {body.active_bits()}, {body.op('load i32, ptr %alive')}")
        body.do(f"br i1 {is_whole}, label %A{number}, label %W{number}")
        body.label(f"W{number}")
        self._wait_for(str(self._at_barrier(number)), body.active())
        body.do("br label %schedule")
        body.label(f"A{number}")

    def restore(self, number: int) -> None:
        """Resume at a block, with all lanes that have not ended."""
        body = self._body
        body.label(f"RESUME{number}")
        if body.lanes.may_diverge:
            alive = body.op(f"load i32, ptr {body.op(f'getelementptr i8, ptr %frame, i64 {ALIVE}')}")
            body.do(f"store i32 {alive}, ptr %alive")
            body.do(f"store i32 {alive}, ptr %active")
        body.do(f"br label %{self._label(number)}")

    def end(self) -> None:
        """Write the function's end, and the scheduler that chooses the next block if lanes may diverge."""
        body, words = self._body, WIDE.ints(32)
        body.begin("END")
        if not body.lanes.may_diverge:
            body.do(f"ret i32 {ENDED}")
            return
        active = body.active()
        self._wait_for(str(NOWHERE), active)
        self._end_lanes(active)
        body.do("br label %schedule")
        body.begin("QUEUE")
        self._wait_for(body.op("load i32, ptr %next"), body.active())
        body.do("br label %schedule")
        body.label("schedule")
        lane_ranks = body.op(f"load {words}, ptr %places")
        # The earliest block first: lanes that are ahead wait where the others will arrive.
        lowest = body.intrinsic(f"vector.reduce.umin.v{LANES}i32", "i32", (words, lane_ranks))
        chosen = body.op(f"icmp eq {words} {lane_ranks}, {body.splat('i32', lowest)}")
        body.do(f"store i32 {body.bits(chosen)}, ptr %active")
        waiting_ranks = body.op(
            f"select {WIDE.ints(1)} {chosen}, {words} {WIDE.const(32, NOWHERE)}, {words} {lane_ranks}"
        )
        body.do(f"store {words} {waiting_ranks}, ptr %places")
        next_rank = body.intrinsic(f"vector.reduce.umin.v{LANES}i32", "i32", (words, waiting_ranks))
        body.do(f"store i1 {body.op(f'icmp ne i32 {next_rank}, {NOWHERE}')}, ptr %waiting")
        cases = [f"i32 {rank}, label %X{number}" for number, rank in enumerate(self._ranks)]
        cases += [f"i32 {self._at_barrier(number)}, label %A{number}" for number in self._barriers]
        body.do(f"switch i32 {lowest}, label %FINISHED [{' '.join(cases)}]")
        body.label("FINISHED")
        body.do(f"ret i32 {ENDED}")
