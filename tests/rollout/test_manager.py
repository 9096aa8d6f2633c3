# SPDX-License-Identifier: Apache-2.0
"""The manager through verl's own worker: rows of a validation are marked, and prompts get budgets."""

import asyncio
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl.experimental.agent_loop.agent_loop import AgentLoopManager
from verl.trainer.ppo.v1 import AgentLoopManagerTQ
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.import_utils import load_class_from_fqn
from verl.utils.tensordict_utils import assign_non_tensor_data, get_tensordict

from tests.config.composed import composed
from tests.reward.results import correct
from verl_kernel.adaptive import AdaOptions, run_state
from verl_kernel.adaptive.budgets import PROMPT_NAME, prompt_name
from verl_kernel.errors import ConfigError, EnvironmentNotReady
from verl_kernel.reward import first_validation
from verl_kernel.reward.record import TurnRecord
from verl_kernel.reward.rows import is_validation, step_of
from verl_kernel.rollout.manager import KernelAgentLoopManager, await_judge

ROLLOUT = OmegaConf.create(
    {
        "actor_rollout_ref": {
            "rollout": {
                "temperature": 1.0, "top_p": 1.0, "top_k": -1, "calculate_log_probs": True,
                "val_kwargs": {"temperature": 0.0, "top_p": 1.0, "top_k": -1},
                "agent": {"default_agent_loop": "kernel_agent"},
            }
        }
    }
)  # fmt: skip


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


def test_recipes_select_the_manager():
    agent = composed("cpu_quickstart").actor_rollout_ref.rollout.agent
    assert load_class_from_fqn(agent.agent_loop_manager_class) is KernelAgentLoopManager
    assert omega_conf_to_dataclass(agent).agent_loop_manager_class == agent.agent_loop_manager_class


@pytest.fixture(autouse=True)
def no_run():
    yield
    run_state.begin(AdaOptions())


TASKS = [[{"role": "user", "content": text}] for text in ("hard", "easy", "new")]


@pytest.fixture
def sent(monkeypatch):
    """What goes to two workers."""
    found: list[TensorDict] = []
    monkeypatch.setattr(AgentLoopManagerTQ, "generate_sequences", lambda self, prompts: found.extend(prompts.chunk(2)))
    return found


def manager(**ada: Any) -> KernelAgentLoopManager:
    rollout = {"n": 8, "agent": {"num_workers": 2}}
    config = {"algorithm": {"ada": ada}, "actor_rollout_ref": {"rollout": rollout, "model": {}}}
    return KernelAgentLoopManager(config=OmegaConf.create(config), llm_client=None)


def batch(step: int = 1, validate: bool | None = None) -> TensorDict:
    """Three prompts as verl's trainer hands them over."""
    columns = {"uid": list("abc"), "index": [0, 1, 2], "raw_prompt": TASKS}
    arrays = {name: np.empty(3, dtype=object) for name in columns}
    for name, values in columns.items():
        arrays[name][:] = values
    prompts = get_tensordict(arrays)
    assign_non_tensor_data(prompts, "global_steps", step)
    if validate is not None:
        assign_non_tensor_data(prompts, "validate", validate)
    return prompts


def played(sent: list[TensorDict]) -> dict[str, dict[str, Any]]:
    return {row["uid"]: row for chunk in sent for row in rows_of(chunk)}


@pytest.mark.parametrize("validate", [None, False, True])
def test_rows_of_a_validation_say_so(sent, validate):
    manager().generate_sequences(batch(step=3, validate=validate))
    rows = played(sent)
    assert list(rows) == ["a", "b", "c"]
    assert [is_validation(row) for row in rows.values()] == [bool(validate)] * 3
    assert [step_of(row) for row in rows.values()] == [3, 3, 3]


def count_one_hard_and_one_easy() -> None:
    begun = run_state.current()
    assert begun is not None
    begun.count(1, {prompt_name(TASKS[0]): (8, 0), prompt_name(TASKS[1]): (8, 8)})


def test_harder_prompts_get_more_of_a_fixed_total(sent):
    own = manager(sampling="est", n_min=2, n_max=20, decay=0.5)
    own.generate_sequences(batch())
    assert [row["__rollout_n__"] for row in played(sent).values()] == [8, 8, 8]
    count_one_hard_and_one_easy()
    sent.clear()
    own.generate_sequences(batch(2))
    rows = played(sent)
    assert {uid: row[PROMPT_NAME] for uid, row in rows.items()} == dict(
        zip("abc", map(prompt_name, TASKS), strict=True)
    )
    # p is 1/10, 9/10 and the prior's 1/2.
    weights = [(p + 0.01) ** -0.5 for p in (0.1, 0.9, 0.5)]
    found = [row["__rollout_n__"] for row in rows.values()]
    assert sum(found) == 24
    assert found == pytest.approx([24 * w / sum(weights) for w in weights], abs=1)


def test_a_resumed_run_shares_out_by_the_counts_of_its_file(sent, tmp_path):
    options = {"sampling": "est", "counts_file": str(tmp_path / "counts.jsonl")}
    manager(**options).generate_sequences(batch())
    count_one_hard_and_one_easy()
    sent.clear()
    manager(**options).generate_sequences(batch(2))
    hard, easy, new = (played(sent)[uid]["__rollout_n__"] for uid in "abc")
    assert hard > new > easy
    assert hard + new + easy == 24


@pytest.mark.parametrize(("sampling", "validate"), [("none", None), ("seq_pos", None), ("est", True)])
def test_other_batches_are_left_alone(sent, sampling, validate):
    manager(sampling=sampling).generate_sequences(batch(validate=validate))
    assert not any("__rollout_n__" in row or PROMPT_NAME in row for row in played(sent).values())


def test_only_rounds_have_a_worker_of_ours():
    from verl_kernel.rollout.adaptive_worker import AdaptiveWorker

    assert manager(sampling="est").agent_loop_workers_class is AgentLoopWorkerTQ
    ours = manager(sampling="seq_balance").agent_loop_workers_class
    assert issubclass(ours.__ray_metadata__.modified_class, AdaptiveWorker)
    assert issubclass(KernelAgentLoopManager, AgentLoopManager)


def test_a_first_validation_without_programs_ends_the_run(sent):
    known = {"start": 0, "stop": 4096, "reward": 0.0, "result": correct(2.0, 0.9)}
    answers, own = [TurnRecord(code=code, **known) for code in (None, None, "x")], manager()
    first_validation.note(answers, least_share=0.5)
    own.generate_sequences(batch(validate=True))
    with pytest.raises(ConfigError, match=r"1 of the 3 answers.*4096 tokens.*enable_thinking=false.*least_programs=0"):
        own.generate_sequences(batch())
    for least, seen in ((0.0, answers), (0.5, answers[1:])):
        own = manager()
        first_validation.note(seen, least)
        first_validation.note(answers, least_share=0.5)
        own.generate_sequences(batch())


@pytest.mark.ray
def test_a_gym_without_a_judge_ends_the_run_before_it_generates():
    import ray

    gym = {"device": "cuda", "num_judges": 1, "gpus_per_judge": 0.0}
    config = OmegaConf.create({"kernelgym": gym, "reward": {"reward_manager": {"name": "kernelgym"}}})
    local = ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    with local, pytest.raises(EnvironmentNotReady, match="device cuda needs a GPU"):
        await_judge(config)
