# SPDX-License-Identifier: Apache-2.0
"""A repetition of instructions on other registers as a loop, which takes its registers' places from tables."""

from __future__ import annotations

from collections.abc import Iterator

from verl_kernel.env.executor.flow.repeats import Repeat
from verl_kernel.env.executor.lowering.body import Body
from verl_kernel.env.executor.lowering.opcodes import lower


class Loop:
    """Lowers a repetition.

    Args:
        body: the function; what the repetition reads has a place in its frame.
        repeat: which instructions.
        after: registers that are read after it.
    """

    def __init__(self, body: Body, repeat: Repeat, after: frozenset[str]) -> None:
        self._body, self._repeat = body, repeat
        self._reads, self._writes = body.graph.reads, body.graph.writes
        self._once = range(repeat.start, repeat.start + repeat.period)
        self._rows = {place: dict(self._names(place)) for place in self._once}
        """Of each instruction, by a register's name in the first round, its names in all rounds."""
        self._is_alike = self._has_one_shape()
        self._needed = after | self._exposed()
        self._found: dict[tuple[int, ...], str] = {}
        self.tables: list[str] = []
        """Constants of the module."""
        self._lower(list(self._places(after)))

    def _names(self, place: int) -> Iterator[tuple[str, tuple[str, ...]]]:
        rounds = range(place, self._repeat.end, self._repeat.period)
        for names in zip(*((*self._writes[one], *self._reads[one]) for one in rounds), strict=True):
            yield names[0], names

    def _has_one_shape(self) -> bool:
        """Whether in each round the same of its registers are one."""
        seen: dict[str, tuple[str, ...]] = {}
        for row in self._rows.values():
            for name, names in row.items():
                if seen.setdefault(name, names) != names:
                    return False
        return all(len(set(turn)) == len(seen) for turn in zip(*seen.values(), strict=True))

    def _exposed(self) -> frozenset[str]:
        """Registers that a round reads before it writes them, in all rounds."""
        written: set[str] = set()
        found: set[str] = set()
        for place, row in self._rows.items():
            found.update(*(row[name] for name in self._reads[place] if name not in written))
            written.update(self._writes[place])
        return frozenset(found)

    def _kept(self, place: int) -> frozenset[str]:
        """What an instruction writes to memory, by the names in the first round."""
        row = self._rows[place]
        return frozenset(
            name for name in self._writes[place] if not self._is_alike or not self._needed.isdisjoint(row[name])
        )

    def _places(self, after: frozenset[str]) -> Iterator[dict[str, int]]:
        """Where each instruction's registers are, of all rounds; what is read no more makes place for others."""
        frame, repeat = self._body.frame, self._repeat
        last = {name: place for place in range(repeat.start, repeat.end) for name in self._reads[place]}
        kept = {place: self._kept(place) for place in self._once}
        for place in range(repeat.start, repeat.end):
            turn, offset = divmod(place - repeat.start, repeat.period)
            first = repeat.start + offset
            own = {name: names[turn] for name, names in self._rows[first].items()}
            found = {name: frame.places[own[name]] for name in self._reads[first] if own[name] in frame.places}
            read = [own[name] for name in found if name not in self._writes[first]]
            frame.free(name for name in read if last[name] == place and name not in after)
            frame.lend(self._body.shapes(own[name] for name in kept[first]))
            yield found | {name: frame.places[own[name]] for name in kept[first]}

    def _lower(self, places: list[dict[str, int]]) -> None:
        body, start, period = self._body, self._repeat.start, self._repeat.period
        head, label, following = f"H{start}", f"R{start}", f"%next{start}"
        body.do(f"br label %{head}")
        body.begin(head)
        body.do(f"br label %{label}")
        body.begin(label)
        turn = body.op(f"phi i64 [ 0, %{head} ], [ {following}, %{label} ]")
        for place in self._once:
            rounds = places[place - start :: period]
            body.pointers = {name: self._pointer(tuple(row[name] for row in rounds), turn) for name in rounds[0]}
            body.masked = frozenset(
                name for name, row in self._rows[place].items() if not body.crossing.isdisjoint(row)
            )
            if not self._is_alike:
                body.forget()
            body.enter(place, self._kept(place))
            lower(body)
        body.pointers, body.masked = {}, body.crossing
        body.do(f"{following} = add i64 {turn}, 1")
        again = body.op(f"icmp ult i64 {following}, {self._repeat.rounds}")
        body.do(f"br i1 {again}, label %{label}, label %E{start}")
        body.begin(f"E{start}")

    def _pointer(self, places: tuple[int, ...], turn: str) -> str:
        """A register's place in the current round."""
        body = self._body
        if places not in self._found:
            self._found[places] = body.op(f"getelementptr i8, ptr %frame, i64 {self._offset(places, turn)}")
        return self._found[places]

    def _offset(self, places: tuple[int, ...], turn: str) -> str:
        """The same as bytes from the frame's begin."""
        body, step = self._body, places[1] - places[0]
        if all(place == places[0] + number * step for number, place in enumerate(places)):
            return body.op(f"add i64 {body.op(f'mul i64 {turn}, {step}')}, {places[0]}") if step else str(places[0])
        name = f"@vk_places_{self._repeat.start}_{len(self.tables)}"
        self.tables.append(f"{name} = constant [{len(places)} x i32] [{', '.join(f'i32 {place}' for place in places)}]")
        at = body.op(f"getelementptr i32, ptr {name}, i64 {turn}")
        return body.op(f"zext i32 {body.op(f'load i32, ptr {at}')} to i64")
