# SPDX-License-Identifier: Apache-2.0
"""verl's agent loop manager, which tells the loops what is played for validation.

verl drops that mark before it calls an agent loop or a reward manager, and the gym serves validation first. Selected
by `actor_rollout_ref.rollout.agent.agent_loop_manager_class`.
"""

from __future__ import annotations

from tensordict import TensorDict
from verl.trainer.ppo.v1 import AgentLoopManagerTQ
from verl.utils.tensordict_utils import assign_non_tensor_data

from verl_kernel.reward.unjudged import VALIDATION


class KernelAgentLoopManager(AgentLoopManagerTQ):  # type: ignore[misc]
    """verl's manager; rows of a validation carry `reward.unjudged.VALIDATION`."""

    def generate_sequences(self, prompts: TensorDict) -> None:
        """Start the rollouts of a batch without waiting for them."""
        if "validate" in prompts and prompts["validate"]:  # noqa: RUF019  `get` of a TensorDict wraps the value
            assign_non_tensor_data(prompts, VALIDATION, True)
        super().generate_sequences(prompts)
