# SPDX-License-Identifier: Apache-2.0
"""What pages say of the quickstart's validation and model: prompts that training has too, and parameters."""

from random import Random
from types import SimpleNamespace

import pytest

from verl_kernel.quickstart.build import Quickstart
from verl_kernel.quickstart.warm_start import build_model


@pytest.mark.parametrize(("world", "repeated"), [("hard", 27), ("easy", 30)])
def test_most_validation_tasks_resemble_training_tasks(world, repeated):
    options = Quickstart(world=world)
    rng, taken, made = Random(options.seed), set(), options.make_world()
    train = made.tasks(options.train_tasks, rng, taken)
    val = made.tasks(options.val_tasks, rng, taken)
    known = {shown(made, program) for program in train}
    assert sum(shown(made, program) in known for program in val) == repeated
    assert not {program.reference for program in train} & {program.reference for program in val}


def shown(world, program):
    """The prompt less the sizes, which the easy world shows after the class."""
    return world.messages(program)[-1]["content"].partition("def get_inputs")[0]


class Tokenizer(SimpleNamespace):
    def __len__(self):
        return Quickstart().vocabulary


def test_the_model_has_1_18_million_parameters():
    tokenizer = Tokenizer(eos_token_id=0, pad_token_id=0)
    assert build_model(Quickstart().warm_start, tokenizer, 0).num_parameters() == 1_181_056
