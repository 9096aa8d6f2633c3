# SPDX-License-Identifier: Apache-2.0
"""Options of Reinforce-Ada, read from verl's `algorithm.ada`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Interval

from verl_kernel.adaptive.pool import ExitRule
from verl_kernel.errors import ConfigError
from verl_kernel.option_group import OptionGroup, in_words, nearest

NODE = "algorithm.ada"
PRIOR = 1.0
"""Positives, and negatives, that every prompt is taken to have had: both numbers of the Beta prior of its pass rate."""
_Count = Annotated[int, Interval(ge=1)]


@dataclass(frozen=True)
class AdaOptions(OptionGroup):
    """How many rollouts a prompt gets, and which of them are trained on (arXiv 2510.04996).

    Raises:
        ConfigError: a value is out of its range, or two contradict each other; the message names the full key.
    """

    NODE = NODE
    CONSTANTS: ClassVar[Mapping[str, float]] = {"prior_positive": PRIOR, "prior_negative": PRIOR}

    sampling: Literal["none", "est", "seq_pos", "seq_balance"] = "none"
    """`none`: as verl; `est`: a budget per prompt; `seq_pos`, `seq_balance`: rounds until a prompt has enough."""
    positive: str = "best_turn_speedup"
    """Key of verl's `reward_extra_info` by which a rollout is positive: `best_turn_speedup` from 1.0 on is a correct
    kernel that is as fast as its reference in some turn; `best_turn_acc` takes slow ones too."""
    positive_from: Annotated[float, Interval(gt=0, lt=math.inf)] = 1.0
    """The value of that key from which it is positive."""
    round_size: _Count = 8
    """M: rollouts of a round; at least `actor_rollout_ref.rollout.n`."""
    max_draws: _Count = 32
    """Rollouts of a prompt in a step at most."""
    k_pos: _Count | None = None
    """Positives that end the rounds; null is 1 in `seq_pos` and half of n in `seq_balance`."""
    k_neg: _Count | None = None
    """Negatives that `seq_balance` needs besides; null is the other half of n."""
    n_min: _Count = 2
    """Least budget of a prompt in `est`."""
    n_max: _Count = 32
    """Largest budget of a prompt in `est`."""
    decay: Annotated[float, Interval(ge=0, le=1)] = 0.9
    """What is left of a prompt's earlier counts when new ones come in (lambda)."""
    epsilon: Annotated[float, Interval(gt=0, lt=math.inf)] = 0.01
    """Added to the pass rate in `est`'s budgets, and under `ada_est`'s root."""
    root: Literal["pass_rate", "mean_return"] = "pass_rate"
    """What stands under `ada_est`'s root: the prompt's share of positives, or the mean return of the group, which
    depends on the rewards' scale."""
    counts_file: str | None = None
    """File of `est`'s counts, a line per step, which a resumed run reads; null keeps them in memory."""
    weight: Literal["none", "inverse_p"] = "none"
    """Factor of a prompt's advantages in `ada_seq`: none, or 1 over the pool's share of positives."""
    weight_cap: Annotated[float, Interval(ge=1, lt=math.inf)] = 10.0
    """Largest such factor."""
    seed: int = 0
    """Seed of the choice of the rollouts that are trained on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_draws < self.round_size:
            raise ConfigError(
                f"{NODE}.max_draws is {self.max_draws} and round_size is {self.round_size}: a prompt has at least one "
                "round, so raise max_draws or lower round_size"
            )
        if self.n_max < self.n_min:
            raise ConfigError(f"{NODE}.n_max is {self.n_max} and n_min is {self.n_min}: raise n_max or lower n_min")
        if self.k_neg is not None and self.sampling != "seq_balance":
            raise ConfigError(
                f"{NODE}.k_neg is {self.k_neg} and sampling is {self.sampling}: only seq_balance asks for negatives: "
                "set k_neg to null"
            )

    @property
    def in_rounds(self) -> bool:
        """Whether rollouts of a prompt are drawn in rounds."""
        return self.sampling in ("seq_pos", "seq_balance")

    def exit_rule(self, n: int) -> ExitRule:
        """When the rounds of a prompt end, of whose rollouts `n` are trained on.

        Raises:
            ConfigError: `max_draws` is below what it takes.
        """
        balanced = self.sampling == "seq_balance"
        k_pos = self.k_pos or (max(n // 2, 1) if balanced else 1)
        k_neg = (self.k_neg or n - n // 2) if balanced else 0
        if self.max_draws < max(n, k_pos + k_neg):
            raise ConfigError(
                f"{NODE}.max_draws is {self.max_draws}, but {max(n, k_pos + k_neg)} rollouts are asked for (n is {n}, "
                f"k_pos {k_pos}, k_neg {k_neg}): raise max_draws"
            )
        return ExitRule(k_pos, k_neg, n, self.round_size, self.max_draws)

    def is_positive(self, info: Mapping[str, float]) -> bool:
        """Whether a rollout is positive, by verl's `reward_extra_info`.

        Raises:
            ConfigError: the rollout's reward does not report the key.
        """
        if self.positive not in info:
            raise ConfigError(
                f"{NODE}.positive is {in_words(self.positive)}, which no rollout reports; "
                f"{nearest(self.positive, info)}it must be one of {', '.join(sorted(info))}"
            )
        return float(info[self.positive]) >= self.positive_from
