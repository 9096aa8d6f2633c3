# SPDX-License-Identifier: Apache-2.0
"""Suite `cpu`: the validation tasks of the quickstart with seed 0, with prompts in the form that its model has learnt.

The quickstart's training tasks are drawn first and left out, so a model that was trained on these has seen no task of
the suite, nor has its cold start, whose conversations avoid both. The tasks are drawn here by the generator: the
package that writes the quickstart's files needs torch and transformers, but a suite does not.
"""

from __future__ import annotations

from random import Random

from verl_kernel.bench.suites.suite import Suite, SuiteItem
from verl_kernel.env import Task
from verl_kernel.quickstart.corpus import FEEDBACK_CHARS, task_messages
from verl_kernel.quickstart.tasks import Program, draw_distinct

SEED, TRAINING_TASKS, TASKS = 0, 256, 32
"""Defaults of `quickstart.options.Quickstart`."""
MAX_TOKENS = 200
"""Large enough: the answers of its cold start have at most about 120 tokens."""


def cpu_suite() -> Suite:
    """Return the suite."""
    rng = Random(SEED)
    taken: set[str] = set()
    draw_distinct(TRAINING_TASKS, rng, taken)
    tasks = tuple(map(_item, draw_distinct(TASKS, rng, taken)))
    return Suite("cpu", tasks, max_tokens=MAX_TOKENS, feedback_chars=FEEDBACK_CHARS)


def _item(program: Program) -> SuiteItem:
    task = Task(program.reference, program.task_id)
    return SuiteItem(task, tuple(task_messages(program)), program.level, program.family)
