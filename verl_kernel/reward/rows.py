# SPDX-License-Identifier: Apache-2.0
"""Judges the answers to rows of verl's data.

A turn that still has no verdict after its second attempt makes its whole trajectory `unjudged`: it teaches nothing and
is no member of any group. An estimator cannot tell it from others, so our sampler removes it from the batch and counts
it. The loop that finds such a turn passes the trajectory on, marked in verl's `reward_extra_info`, if that sampler is
selected or if a validation only counts; otherwise it raises an error, and verl handles a failed rollout.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from verl_kernel.env import EvalResult, Task
from verl_kernel.errors import InfraError
from verl_kernel.reward.judging import Judged, judge_answer
from verl_kernel.reward.profiling import ProfilingReward

if TYPE_CHECKING:
    from verl_kernel.client import Gym

logger = logging.getLogger(__name__)
UNJUDGED = "unjudged"
"""Key in `reward_extra_info`: 1 if a turn could not be judged, else 0."""
VALIDATION = "kernel_validation"
"""Key of a row that is played for validation."""
SAMPLER = "verl_kernel.sampler.prs"


def has_our_sampler(config: DictConfig) -> bool:
    """Whether the configuration selects the sampler that removes unjudged trajectories."""
    return str(OmegaConf.select(config, "trainer.v1.sampler.custom_sampler.path")).endswith(SAMPLER)


def is_validation(row: Mapping[str, Any]) -> bool:
    """Whether a row is played for validation, which `rollout.manager` marks."""
    return bool(row.get(VALIDATION, False))


def note_loss(result: EvalResult, row: Mapping[str, Any], config: DictConfig) -> None:
    """Log that a turn could not be judged.

    Raises:
        InfraError: the trajectory is one of training, and no sampler would remove it.
    """
    sentence = f"task {result.task_id} was not judged: {result.error and result.error.message}"
    if not is_validation(row) and not has_our_sampler(config):
        raise InfraError(sentence)
    logger.error(sentence)


def step_of(row: Mapping[str, Any]) -> int | None:
    """Return the trainer's step in which a row was drawn; within one step the gym remembers verdicts."""
    return None if row.get("global_steps") is None else int(row["global_steps"])


async def judge_row(
    task: Task,
    answer: str,
    row: Mapping[str, Any],
    gym: Gym,
    *,
    reward: ProfilingReward,
    config: DictConfig,
) -> Judged:
    """Judge an answer to a row of verl's data.

    Args:
        task: task of the row.
        answer: the policy's text.
        row: states the trainer's step, and whether it is played for validation.
        gym: the cluster's pool of judges.
        reward: computes the reward of a verdict.
        config: the whole configuration, which names the sampler.

    Raises:
        InfraError: the answer of a training rollout could not be judged, and no sampler of this package removes it.
    """
    evaluate = functools.partial(gym.evaluate, validate=is_validation(row), step=step_of(row))
    judged = await judge_answer(task, answer, evaluate, reward)
    if judged.lost:
        note_loss(judged.result, row, config)
    return judged
