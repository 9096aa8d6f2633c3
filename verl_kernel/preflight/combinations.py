# SPDX-License-Identifier: Apache-2.0
"""Refuses combinations of advantage estimator and policy loss that cannot be intended.

Any estimator may be paired with any loss that gets the log-probabilities it reads (`loss.preflight` asks for those).
Only combinations that count a term twice, or could never learn anything, are refused.
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
"""Refused pairs of estimator and loss, and the reasons. `rec_group_mean` is the estimator's plain form."""


def check_combination(config: DictConfig) -> None:
    """Check that estimator and policy loss do not apply a term twice, and that the estimator has rollouts to compare.

    Raises:
        ConfigError: one of these does not hold; the message names the keys and the remedy.
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
