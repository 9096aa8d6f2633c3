# SPDX-License-Identifier: Apache-2.0
"""Counts of prompts and pools of Reinforce-Ada, as the sampler takes them from the queue."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import transfer_queue as tq
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from tests.reward.results import correct, failed
from tests.sampler.trajectories import make_buffer, put, trajectory
from verl_kernel.adaptive import AdaOptions, PoolStatistics, run_state
from verl_kernel.adaptive.budgets import PROMPT_NAME
from verl_kernel.adaptive.pool import TAG

FAST, SLOW, WRONG, LOST = (
    trajectory(result) for result in (correct(2.0), correct(0.5), failed(), failed("infra_error"))
)
MODES = ["sync", "colocate_async"]


@pytest.fixture(autouse=True)
def no_run() -> Iterator[None]:
    yield
    run_state._states.clear()


def put_named(uid: str, name: str, rows: list) -> None:
    """A prompt of the name, which the manager gave it."""
    put("train", uid, rows)
    keys = [f"{uid}_{session}_0" for session in range(len(rows))]
    names = list_of_dict_to_tensordict([{PROMPT_NAME: name} for _ in rows])
    tq.kv_batch_put(keys=keys, partition_id="train", fields=names)


@pytest.mark.parametrize("mode", MODES)
def test_judged_rollouts_are_counted_and_slow_ones_are_negative(queue: None, mode: str) -> None:
    own = run_state.begin(AdaOptions(sampling="est"))
    put_named("a", "hard", [FAST, SLOW, WRONG, LOST, WRONG])
    put_named("b", "easy", [FAST, FAST])
    _, metrics = make_buffer(mode).sample(1, "train", 2)
    assert own.counts.seen == {"hard": (4.0, 1.0), "easy": (2.0, 2.0)}
    assert own.pass_rates == {"a": 0.25, "b": 1.0}
    wanted = {"ada/draws/total": 7, "ada/budget/mean": 3.5, "ada/budget/max": 5, "ada/budget/min": 2}
    wanted |= {"ada/expected_p/mean": 0.5, "ada/judge_seconds/total": 0}
    assert {name: metrics[name] for name in wanted} == pytest.approx(wanted)


def test_plain_correctness_counts_where_it_is_chosen(queue: None) -> None:
    own = run_state.begin(AdaOptions(sampling="est", positive="best_turn_acc"))
    put_named("a", "hard", [FAST, SLOW, WRONG])
    make_buffer().sample(1, "train", 1)
    assert own.counts.seen == {"hard": (3.0, 2.0)}


@pytest.mark.parametrize("mode", MODES)
def test_missing_pools_are_counted(queue: None, mode: str) -> None:
    own = run_state.begin(AdaOptions(sampling="seq_balance"))
    own.pools = {"of an earlier step": PoolStatistics(8, ((1.0,),), 1, "met")}
    put("train", "a", [FAST, WRONG])
    put("train", "b", [FAST, WRONG])
    pool = PoolStatistics(16, ((1.0,), (0.0,), (0.0,)), 1, "limit", judge_calls=15, judge_seconds=2.5)
    tq.kv_put(key="a", partition_id="train", tag={TAG: pool.tag()})
    _, metrics = make_buffer(mode).sample(1, "train", 2)
    assert own.pools == {"a": pool}
    assert metrics["ada/missing_pools"] == 1
    assert metrics["ada/unjudged_draws/total"] == 13
    assert (metrics["ada/judge_calls/total"], metrics["ada/judge_seconds/total"]) == (15, 2.5)


def test_without_reinforce_ada_nothing_is_reported(queue: None) -> None:
    put("train", "a", [FAST, WRONG])
    _, metrics = make_buffer().sample(1, "train", 1)
    assert not any(name.startswith("ada/") for name in metrics)
