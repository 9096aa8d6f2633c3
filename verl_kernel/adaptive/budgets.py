# SPDX-License-Identifier: Apache-2.0
"""Budgets of Reinforce-Ada-Est: how many rollouts each prompt of a batch gets (arXiv 2510.04996, Algorithm 1).

verl's uid of a prompt is random; the names here repeat from step to step and from run to run.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any

from verl_kernel.errors import ConfigError

PROMPT_NAME = "ada_prompt"
"""Key of a row that holds its prompt's name."""
_HALVINGS = 100
"""Bisection steps: more than a double has bits, so more steps could not change the result."""


def prompt_name(messages: Sequence[Any]) -> str:
    """Return the name of a prompt: a hash of its messages, so rows of a dataset that ask the same share a name."""
    text = json.dumps(list(messages), sort_keys=True, default=str, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def budgets(shares: Sequence[float], total: int, low: int, high: int, epsilon: float) -> list[int]:
    """Share `total` rollouts among prompts in proportion to 1 / sqrt(p + epsilon), each within [low, high].

    Prompts that hit a limit get that limit, and the others share the rest, still in proportion. The real numbers are
    rounded down, and the largest remainders are rounded up, the earlier first, until the total is exact.

    Args:
        shares: pass rate p of each prompt, in [0, 1].
        total: rollouts of all prompts together.
        low: smallest budget of a prompt.
        high: largest budget of a prompt.
        epsilon: above 0.

    Raises:
        ConfigError: the limits do not allow the total.
    """
    if not shares:
        return []
    if not low * len(shares) <= total <= high * len(shares):
        raise ConfigError(
            f"{len(shares)} prompts cannot share {total} rollouts with algorithm.ada.n_min {low} and n_max {high}: let "
            "actor_rollout_ref.rollout.n lie between them"
        )
    real = _filled([1.0 / math.sqrt(share + epsilon) for share in shares], total, low, high)
    whole = [min(int(value), high) for value in real]
    largest = sorted((i for i in range(len(real)) if whole[i] < high), key=lambda i: (whole[i] - real[i], i))
    for i in largest[: total - sum(whole)]:
        whole[i] += 1
    return whole


def _filled(weights: Sequence[float], total: int, low: int, high: int) -> list[float]:
    """Return `clip(level * weight, low, high)` at the level where these sum up to the total."""
    below, above = 0.0, high / min(weights)
    for _ in range(_HALVINGS):
        level = (below + above) / 2
        if sum(min(max(level * weight, low), high) for weight in weights) < total:
            below = level
        else:
            above = level
    return [min(max(above * weight, low), high) for weight in weights]
