# SPDX-License-Identifier: Apache-2.0
"""Extracts the candidate program from an answer: a fenced block outside of the thinking text."""

from __future__ import annotations

import re

from verl_kernel.env import EvalError, EvalResult, EvalStatus, Task
from verl_kernel.reward.blocks import PYTHON, fenced_blocks

_THINKING = re.compile(r"^[ \t]*<think>.*?(?:</think>|\Z)", re.DOTALL | re.MULTILINE)


def extract_code(answer: str, candidate_class: str = "ModelNew") -> str | None:
    """Return the program of an answer.

    It is the last closed block that defines the candidate class, else the last one labelled as Python, else the last
    one without a label. Its lines end in a line feed, and the indent of the whole block is removed.

    Args:
        answer: the policy's text; text between `<think>` and `</think>` is not part of the answer.
        candidate_class: name of the class that the gym looks for.

    Returns:
        The program text, or `None` where the answer holds no such block (an unclosed one, cut off by
        the token budget, is not a program either).
    """
    blocks = [block for block in fenced_blocks(_spoken(answer)) if block.body.strip()]
    defines = re.compile(rf"^class[ \t]+{re.escape(candidate_class)}\b", re.MULTILINE)
    for wanted in (
        [block for block in blocks if defines.search(block.body)],
        [block for block in blocks if block.label in PYTHON],
        [block for block in blocks if not block.label],
    ):
        if wanted:
            return wanted[-1].body
    return None


def no_program(task: Task) -> EvalResult:
    """Return the verdict on an answer without a program; every loop rewards and reports it like any other."""
    error = EvalError(stage="extract", type="NoCode", message="the answer holds no closed ```python block")
    return EvalResult(
        task_id=task.task_id, task_hash=task.text_hash, status=EvalStatus.REJECTED_STATIC, compiled=False,
        correctness=False, error=error,
    )  # fmt: skip


def _spoken(answer: str) -> str:
    """Return the answer without its thinking; a chat template may have put the opening tag into the prompt."""
    text = answer.replace("\r\n", "\n")
    before, closed, after = text.partition("</think>")
    lone = bool(closed) and not _THINKING.search(before)
    return _THINKING.sub("", after if lone else text)
