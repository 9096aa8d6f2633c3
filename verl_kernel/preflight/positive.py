# SPDX-License-Identifier: Apache-2.0
"""Whether rollouts report the figure by which Reinforce-Ada counts them as positive."""

from __future__ import annotations

from omegaconf import DictConfig

from verl_kernel.adaptive import AdaOptions
from verl_kernel.adaptive.options import NODE
from verl_kernel.env import EvalResult, EvalStatus
from verl_kernel.preflight.names import LOOP, NAMES
from verl_kernel.verl_keys import find, read

_LOST = EvalResult(task_id="", status=EvalStatus.INFRA_ERROR)


def check_positive(config: DictConfig) -> None:
    """`algorithm.ada.positive` is a figure of our agent loop or reward manager; others may report anything.

    Raises:
        ConfigError: it is not; a run would know only when its first rollouts are judged.
    """
    from verl_kernel.plugin import AGENT_LOOP, REWARD_MANAGER
    from verl_kernel.reward.manager import extra_info
    from verl_kernel.reward.record import TurnRecord
    from verl_kernel.rollout.trajectory import summarise

    options = AdaOptions.from_node(find(config, NODE))
    if options.sampling == "none":
        return
    if read(config, LOOP) == AGENT_LOOP:
        options.is_positive(summarise([TurnRecord(start=0, stop=0, reward=0.0, result=_LOST)]))
    elif read(config, NAMES["reward manager"]) == REWARD_MANAGER:
        options.is_positive(extra_info(_LOST))
