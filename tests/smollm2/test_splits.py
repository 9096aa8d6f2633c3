# SPDX-License-Identifier: Apache-2.0
"""All tasks and conversations that the recipe's command draws."""

import pytest

from recipes.cpu_smollm2.build import SmolLM2
from tests.generated_tasks.near import nearest, references
from verl_kernel.data.families import THRESHOLD
from verl_kernel.generated_tasks.answers import right_answers
from verl_kernel.quickstart.drawing import draw
from verl_kernel.reward.extract import extract_code

pytestmark = pytest.mark.exhaustive
UNSEEN = ("new_chain", "new_family")


@pytest.fixture(scope="module")
def drawn():
    return draw(SmolLM2().world)


@pytest.mark.parametrize("split", UNSEEN)
def test_no_unseen_task_is_near_what_is_shown(drawn, split):
    shown = [*(program.reference for program in drawn.trained), *references(drawn.talks)]
    assert nearest((program.reference for program in drawn.validated[split]), shown) < THRESHOLD


def test_no_answer_of_the_cold_start_solves_an_unseen_task(drawn):
    shown = {extract_code(message["content"]) for talk in drawn.talks for message in talk[1::2]}
    unseen = [program for split in UNSEEN for program in drawn.validated[split]]
    assert len(shown) > 700
    assert not shown & {answer.source for program in unseen for answer in right_answers(program)}
