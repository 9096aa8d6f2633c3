# SPDX-License-Identifier: Apache-2.0
"""Which advantage estimator goes with which policy loss, as data, and the refusal of what cannot be meant.

Any estimator may be paired with any loss that gets the log-probabilities it reads (`loss.preflight` asks for those).
Refused is only what counts a term twice, or could never learn anything.
"""

from __future__ import annotations

from omegaconf import DictConfig

from verl_kernel.errors import ConfigError
from verl_kernel.verl_keys import find, read

ESTIMATOR = "algorithm.adv_estimator"
LOSS = "actor_rollout_ref.actor.policy_loss.loss_mode"
ROLLOUTS = "actor_rollout_ref.rollout.n"
SINGLETON = "algorithm.trloo.singleton"

TWICE = {
    ("asymre_shift", "asymre_kl"): "the lowered baseline and the pull towards the sampler are one term, counted twice",
}
"""Pairs of estimator and loss that are refused, and why. The estimator's plain form is `rec_group_mean`."""


def check_combination(config: DictConfig) -> None:
    """Estimator and policy loss do not do the same thing twice, and the estimator has something to compare.

    Raises:
        ConfigError: they do, or it has not; the message names the keys and the remedy.
    """
    from verl_kernel.advantage import GROUPED

    estimator, loss = (read(config, key) for key in (ESTIMATOR, LOSS))
    if (estimator, loss) in TWICE:
        raise ConfigError(
            f"{ESTIMATOR} is {estimator} and {LOSS} is {loss}: {TWICE[estimator, loss]}; set {ESTIMATOR} to "
            f"rec_group_mean, or {LOSS} to gpg"
        )
    alone = read(config, ROLLOUTS) == 1 and find(config, SINGLETON) == "zero"
    if estimator in GROUPED and alone:
        raise ConfigError(
            f"{ROLLOUTS} is 1 and {ESTIMATOR} is {estimator}, which compares the rollouts of a prompt, so that every "
            f"advantage would be 0: raise {ROLLOUTS}, or set {SINGLETON} to raw"
        )
