# SPDX-License-Identifier: Apache-2.0
"""A world: tasks for training and for validation at four distances from it, and conversations for the cold start.

Near duplicates are those of `verl-kernel data split`: references whose normal forms share 0.7 of their shingles. A
normal form holds neither sizes nor the output's type, so `same` and `new_sizes` are near duplicates of training tasks
by construction, whether a prompt shows the sizes or not; `new_chain` and `new_family` have none among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from random import Random
from typing import Any, Literal, get_args

from verl_kernel.data.families import Shingles, normal_form, shingles, similarity
from verl_kernel.data.rows import make_row
from verl_kernel.world.chains import NEW_SIZES, SIZES, Program, Steps, draw_shape, draw_steps
from verl_kernel.world.difficulty import Difficulty
from verl_kernel.world.talks import Message, draw_talk, task_messages

THRESHOLD = 0.7
"""Smallest similarity of near duplicates, as `verl-kernel data split` has it."""
HELD_OUT = 64
"""Chains of each of the splits `new_chain` and `new_family`."""
DATA_SOURCE = "kernel_world"
Split = Literal["same", "new_sizes", "new_chain", "new_family"]
SPLITS: tuple[Split, ...] = get_args(Split)


class World:
    """Tasks of one difficulty.

    Args:
        difficulty: row of the table.
        seed: which chains are held out.
    """

    def __init__(self, difficulty: Difficulty, seed: int = 0) -> None:
        self.difficulty = difficulty
        self._seed = seed

    def tasks(self, count: int, rng: Random, taken: set[str]) -> list[Program]:
        """Draw training tasks whose references are not in `taken`, and add them to it."""
        programs: list[Program] = []
        while len(programs) < count:
            program = self._program(self._trained(rng), rng)
            if program.reference not in taken:
                taken.add(program.reference)
                programs.append(program)
        return programs

    def validation(self, split: Split, count: int, trained: Sequence[Program], rng: Random) -> list[Program]:
        """Draw tasks at a distance from training.

        Args:
            split: `same` (training tasks), `new_sizes` (their chains at other sizes), `new_chain` (chains that have no
                near duplicate in training), `new_family` (such chains with a step of a family that training lacks).
            count: number of tasks.
            trained: tasks of training.
            rng: source of the draws.
        """
        if split in ("same", "new_sizes"):
            programs = [trained[place % len(trained)] for place in rng.sample(range(max(count, len(trained))), count)]
            if split == "same":
                return programs
            return [replace(program, shape=draw_shape(program.steps, NEW_SIZES, rng)) for program in programs]
        chains = self.held_out[split]
        return [self._program(chains[place % len(chains)], rng) for place in range(count)]

    def messages(self, program: Program) -> list[Message]:
        """Return the prompt of a task."""
        return task_messages(program)

    def talks(self, count: int, rng: Random, taken: set[str]) -> list[list[Message]]:
        """Draw conversations about tasks whose references are not in `taken`, with the chains of training."""
        talks: list[list[Message]] = []
        while len(talks) < count:
            program = self._program(self._trained(rng), rng)
            if program.reference not in taken:
                talks.append(draw_talk(program, self.difficulty, rng))
        return talks

    def rows(self, programs: Sequence[Program], split: str) -> list[dict[str, Any]]:
        """Return rows of a data set as verl reads them; validation is reported by split."""
        return [
            make_row(
                self.messages(program),
                program.reference,
                data_source=DATA_SOURCE if split == "train" else f"{DATA_SOURCE}_{split}",
                task_id=program.task_id,
                split=split,
                index=index,
                level=program.level,
            )
            for index, program in enumerate(programs)
        ]

    @cached_property
    def held_out(self) -> dict[str, list[Steps]]:
        """The chains that training must not come near to, by split; each has a normal form of its own."""
        rng, row = Random(f"{self._seed} held out"), self.difficulty
        found: dict[str, list[Steps]] = {"new_chain": [], "new_family": []}
        taken: set[tuple[str, ...]] = set()
        for split, families in (("new_chain", row.seen), ("new_family", row.families)):
            while len(found[split]) < HELD_OUT:
                steps = self._chain(families, rng)
                names = tuple(step.name for step in steps)
                is_new = any(step.op.family in row.unseen for step in steps)
                if len(steps) > 1 and names not in taken and is_new == (split == "new_family"):
                    taken.add(names)
                    found[split].append(steps)
        return found

    def is_trained(self, steps: Steps) -> bool:
        """Whether training may show a chain: its families are seen, and no held-out chain is its near duplicate."""
        if any(step.op.family in self.difficulty.unseen for step in steps):
            return False
        names = tuple(step.name for step in steps)
        if names not in self._near:
            form = form_of(steps)
            self._near[names] = any(similarity(form, other) >= THRESHOLD for other in self._held_forms)
        return not self._near[names]

    @cached_property
    def _held_forms(self) -> list[Shingles]:
        return [form_of(steps) for chains in self.held_out.values() for steps in chains]

    @cached_property
    def _near(self) -> dict[tuple[str, ...], bool]:
        return {}

    def _trained(self, rng: Random) -> Steps:
        while True:
            steps = self._chain(self.difficulty.seen, rng)
            if self.is_trained(steps):
                return steps

    def _chain(self, families: Mapping[str, float], rng: Random) -> Steps:
        weights = self.difficulty.steps
        count = rng.choices(list(weights), list(weights.values()))[0]
        return draw_steps(count, families, rng)

    def _program(self, steps: Steps, rng: Random) -> Program:
        dtypes = self.difficulty.dtypes
        dtype = rng.choices(list(dtypes), list(dtypes.values()))[0]
        hidden = tuple(key for key, share in self.difficulty.hidden.items() if rng.random() < share)
        return Program(steps, draw_shape(steps, SIZES, rng), dtype, hidden)


@lru_cache(maxsize=65536)
def form_of(steps: Steps) -> Shingles:
    """Return the shingles of a chain's normal form."""
    return shingles(normal_form(Program(steps, (4, 64, 16)).reference))
