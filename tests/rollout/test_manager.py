# SPDX-License-Identifier: Apache-2.0
"""What is played for validation is known to the loops, through verl's own worker."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl.trainer.ppo.v1 import AgentLoopManagerTQ
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.import_utils import load_class_from_fqn
from verl.utils.tensordict_utils import assign_non_tensor_data, get_tensordict

from verl_kernel.reward.rows import is_validation, step_of
from verl_kernel.rollout.manager import KernelAgentLoopManager

ROLLOUT = OmegaConf.create(
    {
        "actor_rollout_ref": {
            "rollout": {
                "temperature": 1.0,
                "top_p": 1.0,
                "top_k": -1,
                "calculate_log_probs": True,
                "val_kwargs": {"temperature": 0.0, "top_p": 1.0, "top_k": -1},
                "agent": {"default_agent_loop": "kernel_agent"},
            }
        }
    }
)


def rows_of(prompts: TensorDict) -> list[dict[str, Any]]:
    """What verl's worker makes of a batch, before it plays it."""
    worker = object.__new__(AgentLoopWorkerTQ.__ray_metadata__.modified_class)
    worker.config, worker.background_tasks, rows = ROLLOUT, set(), []

    async def note(prompt: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        rows.append(prompt)

    worker._run_prompt = note

    async def start() -> None:
        await worker.generate_sequences(prompts)
        await asyncio.gather(*worker.background_tasks)

    asyncio.run(start())
    return rows


@pytest.mark.parametrize("validate", [None, False, True])
def test_rows_of_a_validation_say_so(monkeypatch: pytest.MonkeyPatch, validate: bool | None) -> None:
    sent: list[TensorDict] = []
    monkeypatch.setattr(AgentLoopManagerTQ, "generate_sequences", lambda self, prompts: sent.extend(prompts.chunk(2)))
    prompts = get_tensordict({"uid": np.array(["a", "b"], dtype=object), "index": np.array([0, 1], dtype=object)})
    assign_non_tensor_data(prompts, "global_steps", 3)
    if validate is not None:
        assign_non_tensor_data(prompts, "validate", validate)
    object.__new__(KernelAgentLoopManager).generate_sequences(prompts)
    rows = [row for chunk in sent for row in rows_of(chunk)]
    assert [row["uid"] for row in rows] == ["a", "b"]
    assert [is_validation(row) for row in rows] == [bool(validate)] * 2
    assert [step_of(row) for row in rows] == [3, 3]


def test_recipes_select_the_manager() -> None:
    with initialize_config_module("verl.trainer.config", version_base=None):
        agent = compose("cpu_quickstart").actor_rollout_ref.rollout.agent
    assert load_class_from_fqn(agent.agent_loop_manager_class) is KernelAgentLoopManager
    assert omega_conf_to_dataclass(agent).agent_loop_manager_class == agent.agent_loop_manager_class
