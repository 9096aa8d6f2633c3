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
from typing import Any

from verl_kernel.data.families import THRESHOLD, Shingles, normal_form, shingles, similarity
from verl_kernel.data.rows import make_row, with_tools
from verl_kernel.generated_tasks.chains import NEW_SIZES, SIZES, Program, Steps, draw_further, draw_shape, draw_steps
from verl_kernel.generated_tasks.conversations import TOOLS, Message, draw_talk, is_answerable, task_messages
from verl_kernel.generated_tasks.difficulty import Difficulty
from verl_kernel.generated_tasks.kinds import DATA_SOURCE, Split

HELD_OUT = 64
"""Chains of each of the splits `new_chain` and `new_family`."""


class World:
    """Tasks of one difficulty.

    Args:
        difficulty: row of the table.
        seed: which chains are held out.
    """

    def __init__(self, difficulty: Difficulty, seed: int = 0) -> None:
        self.difficulty = difficulty
        self._seed = seed

    def tasks(self, count: int, rng: Random, references: set[str]) -> list[Program]:
        """Draw training tasks whose references are not in `references`, and add them to it."""
        programs: list[Program] = []
        while len(programs) < count:
            program = self._program(self._trained_chain(rng), rng)
            if program.reference not in references:
                references.add(program.reference)
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
        if split == "same":
            return rng.sample(list(trained), min(count, len(trained)))
        if split == "new_sizes":
            return self._resized(trained, count, rng)
        chains = self.held_out[split]
        return [self._program(chains[index % len(chains)], rng) for index in range(count)]

    def _resized(self, trained: Sequence[Program], count: int, rng: Random) -> list[Program]:
        """Draw trained chains at new sizes, each task once."""
        resized: dict[Program, None] = {}
        while len(resized) < count:
            program = rng.choice(trained)
            shape = draw_shape(program.steps, NEW_SIZES, rng)
            further = draw_further(program.steps, shape, NEW_SIZES, len(program.further), rng)
            resized[replace(program, shape=shape, further=further)] = None
        return list(resized)

    def messages(self, program: Program) -> list[Message]:
        """Return the prompt of a task."""
        return task_messages(program)

    def talks(self, count: int, rng: Random, references: set[str]) -> list[list[Message]]:
        """Draw conversations about tasks whose references are not in `references`.

        Their chains are those of training and some with a step of an unseen family, which the answers leave to torch.
        """
        talks: list[list[Message]] = []
        while len(talks) < count:
            is_unfused = rng.random() < self.difficulty.unfused
            program = self._program(self._unfused_chain(rng) if is_unfused else self._trained_chain(rng), rng)
            if program.reference not in references:
                talks.append(draw_talk(program, self.difficulty, rng))
        return talks

    def rows(self, programs: Sequence[Program], split: str) -> list[dict[str, Any]]:
        """Return rows of a data set as verl reads them; validation is reported by split."""
        rows = [
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
        return [with_tools(row, TOOLS) for row in rows] if self.difficulty.tools else rows

    @cached_property
    def held_out(self) -> dict[str, list[Steps]]:
        """The chains that training must not come near to, by split; each has a normal form of its own."""
        rng, row = Random(f"{self._seed} held out"), self.difficulty
        chains: dict[str, list[Steps]] = {"new_chain": [], "new_family": []}
        drawn_names: set[tuple[str, ...]] = set()
        for split, families in (("new_chain", row.seen), ("new_family", row.families)):
            while len(chains[split]) < HELD_OUT:
                steps = self._chain(families, rng)
                names = tuple(step.name for step in steps)
                if len(steps) > 1 and names not in drawn_names and self._has_unseen(steps) == (split == "new_family"):
                    drawn_names.add(names)
                    chains[split].append(steps)
        return chains

    def is_trained(self, steps: Steps) -> bool:
        """Whether training may show a chain: its families are seen, and no held-out chain is its near duplicate."""
        return not self._has_unseen(steps) and not self._is_near(steps)

    def _has_unseen(self, steps: Steps) -> bool:
        return any(step.op.family in self.difficulty.unseen for step in steps)

    def _is_near(self, steps: Steps) -> bool:
        """Whether a held-out chain is a near duplicate."""
        names = tuple(step.name for step in steps)
        if names not in self._near:
            form = form_of(steps)
            self._near[names] = any(similarity(form, held_form) >= THRESHOLD for held_form in self._held_forms)
        return self._near[names]

    @cached_property
    def _held_forms(self) -> list[Shingles]:
        return [form_of(steps) for chains in self.held_out.values() for steps in chains]

    @cached_property
    def _near(self) -> dict[tuple[str, ...], bool]:
        return {}

    def _trained_chain(self, rng: Random) -> Steps:
        while True:
            steps = self._chain(self.difficulty.seen, rng)
            if self.is_trained(steps):
                return steps

    def _unfused_chain(self, rng: Random) -> Steps:
        """Draw a chain with a step of an unseen family that can be answered while torch does this step."""
        row = self.difficulty
        while True:
            steps = self._chain(row.families, rng)
            if self._has_unseen(steps) and is_answerable(steps, row.unseen) and not self._is_near(steps):
                return steps

    def _chain(self, families: Mapping[str, float], rng: Random) -> Steps:
        """Draw a chain that has a right answer short enough."""
        weights = self.difficulty.steps
        while True:
            count = rng.choices(list(weights), list(weights.values()))[0]
            steps = draw_steps(count, families, rng)
            if is_answerable(steps):
                return steps

    def _program(self, steps: Steps, rng: Random) -> Program:
        dtypes = self.difficulty.dtypes
        dtype = rng.choices(list(dtypes), list(dtypes.values()))[0]
        hidden = tuple(key for key, share in self.difficulty.hidden.items() if rng.random() < share)
        shape = draw_shape(steps, SIZES, rng)
        return Program(steps, shape, dtype, hidden, draw_further(steps, shape, SIZES, self.difficulty.sizes - 1, rng))


@lru_cache(maxsize=65536)
def form_of(steps: Steps) -> Shingles:
    """Return the shingles of a chain's normal form."""
    return shingles(normal_form(Program(steps, (4, 64, 16)).reference))
