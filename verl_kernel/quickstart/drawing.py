# SPDX-License-Identifier: Apache-2.0
"""The quickstart's tasks and conversations, drawn from one seed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

import torch

from verl_kernel.generated_tasks.chains import Program
from verl_kernel.generated_tasks.conversations import Message
from verl_kernel.generated_tasks.generator import World
from verl_kernel.generated_tasks.kinds import Split
from verl_kernel.quickstart.options import Quickstart


@dataclass(frozen=True)
class Drawn:
    """The tasks and the conversations of a quickstart."""

    world: World
    trained: list[Program]
    """Tasks of training."""
    validated: dict[Split, list[Program]]
    """Tasks of the validation by split."""
    talks: list[list[Message]]
    """Conversations of the cold start; none is about a task of training."""


def draw(options: Quickstart, conversations: int | None = None) -> Drawn:
    """Draw everything.

    Args:
        options: seed, world and numbers.
        conversations: another number of conversations than the options'; the tasks do not depend on it.
    """
    rng, world, references = Random(options.seed), World(options.row(), options.seed), set[str]()
    with _one_thread():
        trained = world.tasks(options.train_tasks, rng, references)
        validated = {split: world.validation(split, count, trained, rng) for split, count in options.validation.items()}
        count = options.conversations if conversations is None else conversations
        return Drawn(world, trained, validated, world.talks(count, rng, references))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Chains are tried on a few hundred numbers, for which a second thread costs more than it saves."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
