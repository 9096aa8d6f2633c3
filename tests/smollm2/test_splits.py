# SPDX-License-Identifier: Apache-2.0
"""All tasks and conversations that the recipe's command draws."""

from collections.abc import Iterable

import pytest

from recipes.cpu_smollm2.build import SmolLM2
from verl_kernel.data.families import THRESHOLD, normal_form, shingles, similarity
from verl_kernel.quickstart.drawing import Drawn, draw
from verl_kernel.reward.extract import extract_code
from verl_kernel.world.answers import right_answers

UNSEEN = ("new_chain", "new_family")


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    return draw(SmolLM2().world)


def forms(references: Iterable[str]) -> list[frozenset[str]]:
    return [shingles(form) for form in {normal_form(reference) for reference in references}]


@pytest.mark.parametrize("split", UNSEEN)
def test_no_unseen_task_is_near_what_is_shown(drawn: Drawn, split: str):
    shown = forms(program.reference for program in drawn.trained)
    shown += forms("class Model" + talk[0]["content"].split("class Model")[1].rstrip("`") for talk in drawn.talks)
    unseen = forms(program.reference for program in drawn.validated[split])
    assert max(similarity(one, other) for one in unseen for other in shown) < THRESHOLD


def test_no_answer_of_the_cold_start_solves_an_unseen_task(drawn: Drawn):
    shown = {extract_code(message["content"]) for talk in drawn.talks for message in talk[1::2]}
    unseen = [program for split in UNSEEN for program in drawn.validated[split]]
    assert len(shown) > 700
    assert not shown & {answer.source for program in unseen for answer in right_answers(program)}
