# SPDX-License-Identifier: Apache-2.0
"""verl's agent loop manager, extended to tell the loops which rows are for validation and how many rollouts to draw.

verl drops the mark of a validation before it calls an agent loop or a reward manager, but the gym serves validation
first. Budgets per prompt (`algorithm.ada.sampling: est`) go into the column `__rollout_n__`, which verl's worker reads;
rounds (`seq_pos`, `seq_balance`) need a worker of this package. Selected by
`actor_rollout_ref.rollout.agent.agent_loop_manager_class`.
"""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict
from verl.trainer.ppo.v1 import AgentLoopManagerTQ
from verl.utils.tensordict_utils import assign_non_tensor_data, assign_non_tensor_stack, get_non_tensor_data

from verl_kernel.adaptive import AdaOptions, budgets, run_state
from verl_kernel.adaptive.budgets import PROMPT_NAME, prompt_name
from verl_kernel.client import Gym, connect
from verl_kernel.reward import first_validation
from verl_kernel.reward.options import parse_options
from verl_kernel.reward.rows import VALIDATION
from verl_kernel.verl_keys import find
from verl_kernel.verl_names import AGENT_LOOP, REWARD_MANAGER

LOOP, REWARDS = "actor_rollout_ref.rollout.agent.default_agent_loop", "reward.reward_manager.name"


class KernelAgentLoopManager(AgentLoopManagerTQ):  # type: ignore[misc]
    """verl's manager; marks validation rows with `reward.rows.VALIDATION`, and may give budgets to other rows."""

    def __init__(self, config: DictConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        options = AdaOptions.from_node(config.algorithm.get("ada", None))
        self.gym = await_judge(config)
        run_state.begin(options)
        first_validation.begin()
        if options.in_rounds:
            import ray

            from verl_kernel.rollout.adaptive_worker import AdaptiveWorker

            self.agent_loop_workers_class = ray.remote(AdaptiveWorker)

    def generate_sequences(self, prompts: TensorDict) -> None:
        """Start the rollouts of a batch without waiting for them.

        Raises:
            ConfigError: they are those of training, and the first validation found hardly any program.
        """
        if "validate" in prompts and prompts["validate"]:  # noqa: RUF019  `get` of a TensorDict wraps the value
            assign_non_tensor_data(prompts, VALIDATION, True)
        else:
            first_validation.refuse()
            state = run_state.current()
            if state is not None and state.options.sampling == "est":
                _set_budgets(prompts, state, self.config.actor_rollout_ref.rollout.n)
        super().generate_sequences(prompts)


def await_judge(config: DictConfig) -> Gym | None:
    """Wait until one judge can work, before anything is generated for it; return the gym, None if nothing asks for it.

    Without this a judge that cannot start is found out after the first rollouts, inside of each of them.

    Raises:
        EnvironmentNotReady: no judge can start; its own words.
        InfraError: no judge starts.
    """
    loop, manager = (OmegaConf.select(config, key) for key in (LOOP, REWARDS))
    if loop != AGENT_LOOP and manager != REWARD_MANAGER:
        return None
    options = parse_options(find(config, "kernelgym")).env
    gym = connect(options)
    if options.address is None:
        from verl_kernel.env import KernelGym

        assert isinstance(gym, KernelGym)
        gym.one_ready()
    return gym


def _set_budgets(prompts: TensorDict, state: run_state.RunState, n: int) -> None:
    """Distribute `n` rollouts per prompt on average, by the known pass rates of the prompts."""
    state.restore(int(get_non_tensor_data(prompts, "global_steps", 0)))
    options = state.options
    names = [prompt_name(getattr(messages, "data", messages)) for messages in prompts["raw_prompt"]]
    shares = [state.counts.share(name) for name in names]
    rollouts = budgets(shares, n * len(names), options.n_min, options.n_max, options.epsilon)
    assign_non_tensor_stack(prompts, PROMPT_NAME, names)
    assign_non_tensor_stack(prompts, "__rollout_n__", rollouts)
