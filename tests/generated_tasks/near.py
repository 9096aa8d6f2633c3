# SPDX-License-Identifier: Apache-2.0
"""How near tasks come to what a model was shown, by the rule of `data split`."""

from collections.abc import Iterable

from verl_kernel.data.families import normal_form, shingles, similarity
from verl_kernel.generated_tasks.conversations import Message


def references(talks: Iterable[list[Message]]) -> list[str]:
    """Return the program that each conversation asks about."""
    return ["class Model" + talk[0]["content"].split("class Model")[1].rstrip("`") for talk in talks]


def nearest(unseen: Iterable[str], shown: Iterable[str]) -> float:
    """Return the greatest similarity of a program of the first to one of the second."""
    ones, others = ([shingles(form) for form in {*map(normal_form, programs)}] for programs in (unseen, shown))
    return max(similarity(one, other) for one in ones for other in others)
