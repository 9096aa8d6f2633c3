# SPDX-License-Identifier: Apache-2.0
"""Pins what Reinforce-Ada leans on in verl: the agent loop worker that `AdaptiveWorker` extends, and who is where."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
import verl
from ray.exceptions import RayError
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.trainer.ppo.v1 import agent_loop_tq, replay_buffer
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

VERL = Path(verl.__file__).parent
WORKER = AgentLoopWorkerTQ.__ray_metadata__.modified_class


def parameters(function: Callable[..., Any]) -> list[str]:
    # Ray adds one of its own to the methods of an actor.
    return [name for name in inspect.signature(function).parameters if name != "_ray_trace_ctx"]


def test_the_class_behind_verls_actor_can_be_extended() -> None:
    assert issubclass(WORKER, AgentLoopWorker)
    extended = type("Extended", (WORKER,), {})
    assert hasattr(ray.remote(extended), "options")
    with pytest.raises((TypeError, RayError)):
        type("Refused", (AgentLoopWorkerTQ,), {})


def test_the_worker_has_the_methods_that_ours_overrides() -> None:
    assert parameters(WORKER._run_prompt) == ["self", "prompt", "sampling_params", "trajectory", "trace"]
    assert parameters(WORKER._agent_loop_postprocess) == ["self", "output", "validate", "kwargs"]
    assert parameters(WORKER._compute_score) == ["self", "outputs", "kwargs"]
    played = ["self", "sampling_params", "trajectory", "agent_name", "trace", "kwargs"]
    assert parameters(WORKER._run_agent_loop) == played


def test_a_rollout_ends_in_verls_postprocessing() -> None:
    played = inspect.getsource(AgentLoopWorker._run_agent_loop)
    assert 'self._agent_loop_postprocess(output, trajectory["validate"], **kwargs)' in played


def test_a_reward_that_is_there_is_not_computed_again() -> None:
    assert "final_output.reward_score is None and enable_async_reward" in inspect.getsource(WORKER._compute_score)


def test_the_worker_takes_the_number_of_rollouts_from_a_column() -> None:
    source = inspect.getsource(WORKER._run_prompt)
    assert 'prompt.pop("__rollout_n__",' in source
    for status in ("running", "finished", "failure"):
        assert f'"{status}"' in source


def test_keys_and_tags_of_rows() -> None:
    source = inspect.getsource(WORKER._agent_loop_postprocess)
    assert 'f"{uid}_{session_id}_{i}"' in source
    assert '"global_steps": kwargs["global_steps"]' in source
    assert 'uid, session_id = kwargs["uid"], kwargs["session_id"]' in source


def test_the_manager_starts_workers_of_the_class_that_it_names() -> None:
    assert "self.agent_loop_workers_class = AgentLoopWorkerTQ" in inspect.getsource(AgentLoopManagerTQ.__init__)
    started = inspect.getsource(agent_loop_tq.AgentLoopManager._init_agent_loop_workers)
    assert "self.agent_loop_workers_class.options(" in started


def test_prompt_tags_are_cleared_where_the_batch_is_made() -> None:
    made = replay_buffer.ReplayBuffer._materialize_batch
    assert parameters(made) == ["self", "partition_id", "selected_prompt_uids", "partition_snapshot"]
    assert "tq.kv_clear(partition_id=partition_id, keys=selected_prompt_uids)" in inspect.getsource(made)
    for kind in (replay_buffer.ReplayBuffer, replay_buffer.ReplayBufferAsync):
        assert "self._materialize_batch(partition_id, selected_prompt_uids," in inspect.getsource(kind.sample)


def test_manager_sampler_and_estimator_share_a_process() -> None:
    main = (VERL / "trainer" / "main_ppo.py").read_text()
    assert "self.trainer = trainer_cls(config=config)" in main
    assert "self.agent_loop_manager = agent_loop_manager_cls.create(" in main
    trainer = (VERL / "trainer" / "ppo" / "v1" / "trainer_base.py").read_text()
    assert "self.replay_buffer = self._build_replay_buffer()" in trainer
    assert "data = compute_advantage_for_multi_trajectories(" in trainer
    assert "self.agent_loop_manager.generate_sequences(batch)" in trainer
