# SPDX-License-Identifier: Apache-2.0
"""Reinforce-Ada from rounds of a prompt to the sampler's counts and the estimator, with a scripted model and reward."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import transfer_queue as tq
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, _agent_loop_registry
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from tests.reward.results import correct, failed
from tests.sampler.trajectories import advantages_of, make_buffer, modes, put, queues, trajectory
from verl_kernel.adaptive import AdaOptions, PoolStatistics, run_state
from verl_kernel.adaptive.budgets import PROMPT_NAME
from verl_kernel.adaptive.pool import TAG
from verl_kernel.env.result import EvalResult
from verl_kernel.reward.judging import Judged
from verl_kernel.rollout.adaptive_worker import AdaptiveWorker
from verl_kernel.rollout.trajectory import KernelAgentOutput, Trajectory

FAST, SLOW, WRONG, LOST = correct(2.0), correct(0.5), failed(), failed("infra_error")


@pytest.fixture(autouse=True)
def own_queue(queue):
    yield
    run_state.begin(AdaOptions())


class ScriptedModel:
    """Answers the n-th rollout of a prompt by its script: the results of the turns that its kernels will have."""

    def __init__(self, scripts: dict[str, Callable[[int], tuple[EvalResult, ...] | Exception]]) -> None:
        self.scripts = scripts
        self.asked: dict[str, list[int]] = defaultdict(list)
        self.gates: dict[str, asyncio.Event] = {}

    async def generate(self, uid: str, session: int) -> tuple[EvalResult, ...]:
        self.asked[uid].append(session)
        if uid in self.gates:
            await self.gates[uid].wait()
        # Later sessions are done first.
        await asyncio.sleep(0.002 * (9 - session % 10))
        answer = self.scripts[uid](session)
        if isinstance(answer, Exception):
            raise answer
        return answer


class ScriptedLoop(AgentLoopBase):
    """Plays the turns that the model's answer names; the reward of a turn is its speedup where it is correct."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> KernelAgentOutput:
        results = await self.server_manager.generate(row["uid"], row["session_id"])
        trajectory = Trajectory(prompt_length=2, ids=[1, 2])
        for result in results:
            start = len(trajectory.mask)
            merged = SimpleNamespace(token_ids=[*trajectory.ids, 3 + row["session_id"], 3])
            trajectory.take_tokens(merged, [*trajectory.mask, 1, 1], [*(trajectory.logprobs or []), -0.5, -0.5])
            reward = (result.speedup or 0.0) if result.rewarded else 0.0
            trajectory.record_turn(start, start + 2, Judged("x = 1", result, reward))
        trajectory.extra = {"min_global_steps": 0, "max_global_steps": 0}
        return trajectory.output(AgentLoopMetrics().model_dump())


def worker(model: ScriptedModel, n: int = 4, **ada: Any) -> AdaptiveWorker:
    """A worker as verl builds it, but for tokenizer and model."""
    _agent_loop_registry["scripted"] = {"_target_": f"{ScriptedLoop.__module__}.ScriptedLoop"}
    own = object.__new__(AdaptiveWorker)
    rollout = {"n": n, "val_kwargs": {"n": 2}, "response_length": 64, "prompt_length": 8}
    own.config = OmegaConf.create(
        {"algorithm": {"ada": ada}, "actor_rollout_ref": {"rollout": rollout}, "data": {}, "kernelgym": {}}
    )
    own.llm_client, own.tokenizer, own.processor, own.tools = model, None, None, []
    own.hf_model_type, own.dataset_cls, own.distillation_enabled = None, None, False
    own.reward_loop_worker_handles, own.background_tasks, own.open_rounds = [], set(), {}
    return own


async def play(own: AdaptiveWorker, uid: str, validate: bool = False) -> None:
    """One prompt of step 3, as `generate_sequences` of verl's worker starts it."""
    prompt = {"uid": uid, "global_steps": 3, "agent_name": "scripted", "raw_prompt": [{"role": "user", "content": uid}]}
    where = {"step": 3, "sample_index": 0, "rollout_n": 0, "validate": validate}
    await own._run_prompt(prompt, {}, trajectory=where)


def put_named(uid: str, name: str, *results: EvalResult) -> None:
    """A prompt of the name, which the manager gave it, and its rollouts of one turn."""
    put("train", uid, list(map(trajectory, results)))
    keys = [f"{uid}_{session}_0" for session in range(len(results))]
    names = list_of_dict_to_tensordict([{PROMPT_NAME: name} for _ in results])
    tq.kv_batch_put(keys=keys, partition_id="train", fields=names)


@modes
def test_judged_rollouts_are_counted_and_slow_ones_are_negative(queue, mode):
    own = run_state.begin(AdaOptions(sampling="est"))
    put_named("a", "hard", FAST, SLOW, WRONG, LOST, WRONG)
    put_named("b", "easy", FAST, FAST)
    _, metrics = make_buffer(mode).sample(1, "train", 2)
    assert own.counts.tallies == {"hard": (4.0, 1.0), "easy": (2.0, 2.0)}
    assert own.pass_rates == {"a": 0.25, "b": 1.0}
    wanted = {"ada/draws/total": 7, "ada/budget/mean": 3.5, "ada/budget/max": 5, "ada/budget/min": 2}
    wanted |= {"ada/expected_p/mean": 0.5, "ada/judge_seconds/total": 0}
    assert {name: metrics[name] for name in wanted} == pytest.approx(wanted)


def test_plain_correctness_counts_where_it_is_chosen(queue):
    own = run_state.begin(AdaOptions(sampling="est", positive="best_turn_acc"))
    put_named("a", "hard", FAST, SLOW, WRONG)
    make_buffer().sample(1, "train", 1)
    assert own.counts.tallies == {"hard": (3.0, 2.0)}


@modes
def test_missing_pools_are_counted(queue, mode):
    own = run_state.begin(AdaOptions(sampling="seq_balance"))
    own.pools = {"of an earlier step": PoolStatistics(8, ((1.0,),), 1, "met")}
    put("train", "a", [trajectory(FAST), trajectory(WRONG)])
    put("train", "b", [trajectory(FAST), trajectory(WRONG)])
    pool = PoolStatistics(16, ((1.0,), (0.0,), (0.0,)), 1, "limit", judge_calls=15, judge_seconds=2.5)
    tq.kv_put(key="a", partition_id="train", tag={TAG: pool.tag()})
    _, metrics = make_buffer(mode).sample(1, "train", 2)
    assert own.pools == {"a": pool}
    assert (metrics["ada/missing_pools"], metrics["ada/unjudged_draws/total"]) == (1, 13)
    assert (metrics["ada/judge_calls/total"], metrics["ada/judge_seconds/total"]) == (15, 2.5)


def test_without_reinforce_ada_nothing_is_reported(queue):
    put("train", "a", [trajectory(FAST), trajectory(WRONG)])
    _, metrics = make_buffer().sample(1, "train", 1)
    assert not any(name.startswith("ada/") for name in metrics)


def submit(*uids: str) -> None:
    """What verl's trainer puts before it hands prompts to the workers."""
    for uid in uids:
        tq.kv_put(key=uid, partition_id="train", tag={"is_prompt": True, "status": "pending", "global_steps": 3})


def tags(partition: str = "train") -> dict[str, dict[str, Any]]:
    return (tq.kv_list() or {}).get(partition, {})


def pool_of(uid: str) -> PoolStatistics:
    return PoolStatistics.from_tag(tags()[uid][TAG])


BALANCE = {"sampling": "seq_balance", "round_size": 4, "max_draws": 16}


@queues
async def test_rounds_end_with_both_classes_and_n_rows_are_written():
    # Every sixth rollout is fast in one of its turns: 0, 6, 12. Slow ones are negative.
    model = ScriptedModel({"a": lambda i: (SLOW, FAST) if i % 6 == 0 else (WRONG, SLOW)})
    submit("a")
    own = worker(model, **BALANCE)
    await play(own, "a")
    assert sorted(model.asked["a"]) == list(range(8))
    assert own.open_rounds == {}
    rows = {key: tag for key, tag in tags().items() if key != "a"}
    assert sorted(rows) == ["a_0_0", "a_1_0", "a_2_0", "a_3_0"]
    assert all(tag["status"] == "success" and tag["global_steps"] == 3 for tag in rows.values())
    prompt = tags()["a"]
    assert (prompt["status"], prompt["is_prompt"], prompt["global_steps"]) == ("finished", True, 3)
    pool = pool_of("a")
    assert (pool.draws, pool.positives, pool.reason, pool.judge_calls) == (8, 2, "met", 16)
    # In the order of the sessions, whichever was done first.
    assert pool.rewards == tuple((0.5, 2.0) if i % 6 == 0 else (0.0, 0.5) for i in range(8))
    data = tq.kv_batch_get(keys=sorted(rows), partition_id="train", select_fields=["rm_scores", "session_id"])
    assert sorted(row.sum().item() for row in data["rm_scores"].unbind()) == [0.5, 0.5, 2.5, 2.5]
    assert [int(getattr(one, "data", one)) for one in data["session_id"]] == [0, 1, 2, 3]


async def test_an_easy_prompt_is_ready_while_a_hard_one_draws():
    model = ScriptedModel({"easy": lambda i: (FAST if i % 2 else WRONG,), "hard": lambda i: (WRONG,)})
    submit("easy", "hard")
    own = worker(model, **BALANCE)
    model.gates["hard"] = asyncio.Event()
    hard = asyncio.create_task(play(own, "hard"))
    await play(own, "easy")
    assert (tags()["easy"]["status"], tags()["hard"]["status"]) == ("finished", "running")
    assert len(model.asked["easy"]) == 4
    model.gates["hard"].set()
    await hard
    pool = pool_of("hard")
    assert tags()["hard"]["status"] == "finished"
    assert len(model.asked["hard"]) == 16
    assert (pool.draws, pool.reason, len(set(pool.rewards))) == (16, "limit", 1)


async def test_the_sampler_reads_pools_and_the_estimator_their_means():
    model = ScriptedModel({"a": lambda i: (FAST,) if i == 9 else (WRONG,), "b": lambda i: (WRONG,)})
    submit("a", "b")
    own = worker(model, **(BALANCE | {"sampling": "seq_pos"}))
    await asyncio.gather(play(own, "a"), play(own, "b"))
    begun = run_state.begin(AdaOptions.from_node(own.config.algorithm.ada))
    batch, metrics = make_buffer(enabled=False).sample(3, "train", 2)
    assert len(batch.keys) == 8
    assert set(begun.pools) == {"a", "b"}
    wanted = {"ada/draws/total": 28, "ada/draws/max": 16, "ada/judge_calls/total": 28, "ada/missing_pools": 0}
    wanted |= {"ada/exit/met": 0.5, "ada/exit/limit": 0.5, "ada/zero_gradient_fraction": 0.5}
    wanted |= {"ada/pool_p/mean": 1 / 24, "ada/unjudged_draws/total": 0}
    assert {name: metrics[name] for name in wanted} == pytest.approx(wanted)
    advantages = dict(zip(batch.keys, advantages_of(batch, "ada_seq")[:, 0].tolist(), strict=True))
    mean = 2 / 12
    assert sorted(advantages[key] for key in batch.keys if key[0] == "a") == pytest.approx([-mean] * 3 + [2 - mean])
    assert [advantages[key] for key in batch.keys if key[0] == "b"] == [0.0] * 4


async def test_what_could_not_be_judged_is_no_member_and_not_negative():
    model = ScriptedModel({"a": lambda i: (LOST,) if i < 3 else (FAST if i % 2 else WRONG,)})
    submit("a")
    await play(worker(model, **BALANCE), "a")
    pool = pool_of("a")
    # The first round brings one judged rollout, the second four.
    assert (pool.draws, len(pool.rewards), pool.positives, pool.reason) == (8, 5, 3, "met")
    assert tags()["a"]["status"] == "finished"


async def test_a_gym_that_judges_nothing_is_not_asked_on():
    model = ScriptedModel({"a": lambda i: (LOST,)})
    submit("a")
    await play(worker(model, **BALANCE), "a")
    # Unjudged rows are handed on, for the sampler to count and to take out.
    assert len(model.asked["a"]) == 4
    assert pool_of("a").reason == "stalled"
    assert sum(key != "a" for key in tags()) == 4
    assert tags()["a"]["status"] == "finished"


async def test_too_few_survivors_are_a_failure():
    model = ScriptedModel({"a": lambda i: (FAST,) if i == 0 else RuntimeError("no answer")})
    submit("a")
    await play(worker(model, **BALANCE), "a")
    assert tags()["a"]["status"] == "failure"
    assert sorted(tags()) == ["a", "a_0_0"]
    assert (pool_of("a").draws, pool_of("a").reason) == (8, "stalled")


async def test_a_wrong_option_fails_the_prompt_instead_of_hanging_it():
    submit("a")
    await play(worker(ScriptedModel({"a": lambda i: (FAST,)}), **BALANCE, positive="no_such_key"), "a")
    assert tags()["a"]["status"] == "failure"


async def test_a_reward_is_computed_once_a_draw(monkeypatch):
    model, scored = ScriptedModel({"a": lambda i: (FAST if i % 2 else WRONG,)}), []
    submit("a")
    own = worker(model, **BALANCE)
    compute = AdaptiveWorker._compute_score

    async def score(self: Any, outputs: list[Any], kwargs: dict[str, Any]) -> None:
        before = outputs[-1].reward_score
        await compute(self, outputs, kwargs=kwargs)
        scored.append((before, outputs[-1].reward_score))

    monkeypatch.setattr(AdaptiveWorker, "_compute_score", score)
    await play(own, "a")
    # Once for a draw, and again as verl writes the four; the score is there both times, so nobody is asked for it.
    assert len(scored) == 8
    assert all(before == after is not None for before, after in scored)


async def test_validation_is_left_to_verl():
    model = ScriptedModel({"a": lambda i: (WRONG,)})
    tq.kv_put(key="a", partition_id="val", tag={"is_prompt": True, "status": "pending", "global_steps": 3})
    await play(worker(model, **BALANCE), "a", validate=True)
    assert len(model.asked["a"]) == 2
    assert sorted(tags("val")) == ["a", "a_0_0", "a_1_0"]
    assert tags("val")["a"]["status"] == "finished"
    assert TAG not in tags("val")["a"]
