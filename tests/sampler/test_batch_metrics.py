# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.reward.results import correct, failed, turn
from verl_kernel.advantage.baselines import trloo
from verl_kernel.advantage.turns import place_turn_rewards
from verl_kernel.reward.record import TurnRecord
from verl_kernel.sampler.metrics import (
    accepted_metrics,
    gradient_metrics,
    kernel_metrics,
    selection_metrics,
    unjudged_metrics,
    waiting_metrics,
)
from verl_kernel.sampler.rejection import Verdict, prs_metrics
from verl_kernel.sampler.rows import Row

KEPT, REJECTED = Verdict(1.0, True), Verdict(0.0, False)


def row(uid: str, session: int, *turns: TurnRecord, gym: float = 0.0, generate: float = 0.0) -> Row:
    return Row(f"{uid}_{session}_0", "name", 1, turns, torch.ones(4), False, gym, generate)


def earned(uid: str, *rollouts: list[float]) -> list[Row]:
    return [row(uid, i, *(turn(failed(), reward=r) for r in rewards)) for i, rewards in enumerate(rollouts)]


def keep_all(rows: list[Row]) -> list[list[Verdict]]:
    return [[KEPT for _ in row.turns] for row in rows]


def test_quality_of_kept_and_of_rejected_turns() -> None:
    rows = [
        row("u", 0, turn(correct(2.0, 0.9), reward=2.0), turn(correct(1.0, 0.1), reward=1.0)),
        row("u", 1, turn(failed()), turn(correct(3.0, 0.5), reward=3.0)),
    ]
    metrics = selection_metrics(rows, [[KEPT, REJECTED], [KEPT, KEPT]])
    assert metrics["prs/kept/correct_rate"] == pytest.approx(2 / 3)
    assert metrics["prs/rejected/correct_rate"] == 1
    assert metrics["prs/kept/speedup/mean"] == 2.5
    assert metrics["prs/rejected/speedup/mean"] == 1.0
    assert metrics["prs/kept/time_coverage/mean"] == 0.7
    assert metrics["prs/rejected/time_coverage/mean"] == 0.1
    assert metrics["prs/kept/reward/mean"] == pytest.approx(5 / 3)
    assert metrics["prs/rejected/reward/mean"] == 1.0
    assert metrics["prs/kept/fast@1.2"] == pytest.approx(2 / 3)
    assert metrics["prs/rejected/fast@1.2"] == 0


def test_no_turn_of_a_kind_is_no_metric_of_it() -> None:
    rows = [row("u", 0, turn(failed()))]
    assert not [name for name in selection_metrics(rows, keep_all(rows)) if name.startswith("prs/rejected")]
    assert selection_metrics([], []) == gradient_metrics([], [], 0.0) == waiting_metrics([]) == {}


def test_groups_without_gradient_are_counted_by_turn() -> None:
    rows = [*earned("a", [0.0, 1.0], [1.0, 1.0]), *earned("b", [1.0, 2.0], [1.0, 0.0])]
    metrics = gradient_metrics(rows, keep_all(rows), 1e-3)
    assert metrics["groups/zero_gradient_fraction"] == 0.25
    assert metrics["groups/turn_1/zero_gradient_fraction"] == 0
    assert metrics["groups/turn_2/zero_gradient_fraction"] == 0.5
    assert metrics["groups/turn_1/return_std"] == pytest.approx((0.5 + 1.0) / 2)
    assert metrics["groups/turn_2/return_std"] == pytest.approx(0.5)


def test_accepted_turns_earn_and_stay() -> None:
    rows = [row("u", 0, turn(correct()), turn(correct())), row("u", 1, turn(failed())), row("u", 2)]
    assert accepted_metrics(rows, [[KEPT, REJECTED], [KEPT], []]) == {"rsft/accepted": pytest.approx(1 / 3)}
    decoy = correct().model_copy(update={"decoy_kernel": True})
    assert accepted_metrics([row("u", 0, turn(decoy))], [[KEPT]]) == {"rsft/accepted": 0}
    paid = turn(decoy).model_copy(update={"pay_decoys": True})
    assert accepted_metrics([row("u", 0, paid)], [[KEPT]]) == {"rsft/accepted": 1}
    assert accepted_metrics([row("u", 0)], [[]]) == {}


def test_a_rejected_or_lone_group_has_no_gradient() -> None:
    rows = earned("a", [0.0, 1.0], [1.0])
    assert gradient_metrics(rows, keep_all(rows), 1e-3)["groups/turn_2/zero_gradient_fraction"] == 1
    rejected = [[REJECTED, KEPT], [REJECTED]]
    assert gradient_metrics(rows, rejected, 1e-3)["groups/turn_1/zero_gradient_fraction"] == 1


@given(st.lists(st.tuples(*[st.sampled_from([0.0, 0.5, 2.0])] * 2).map(list), min_size=2, max_size=4))
def test_the_share_is_that_of_trloos_advantages(rewards: list[list[float]]) -> None:
    scores = torch.stack([place_turn_rewards(4, [2, 4], one) for one in rewards])
    uid = np.array(["u"] * len(rewards), dtype=object)
    # With this discount no two different futures of these rewards are worth the same.
    found, _ = trloo(scores, torch.ones(len(rewards), 4), uid, {"trloo": {"gamma": 0.37}})
    silent = [not found[:, start].abs().gt(1e-6).any() for start in (0, 2)]
    rows = earned("u", *rewards)
    assert gradient_metrics(rows, keep_all(rows), 0.0)["groups/zero_gradient_fraction"] == sum(silent) / 2


def test_every_metric_of_ours_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    rows = [row("u", i, turn(correct(2.0 + i, stage_seconds={"run": 1.0}, queue_seconds=1.0)), gym=1.0) for i in (0, 1)]
    told = {"code": "x = 1", "novel": True, "novel_bytes": True}
    turns = [tuple(one.model_copy(update=told) for one in row.turns) for row in rows]
    verdicts = [[KEPT], [REJECTED]]
    metrics = kernel_metrics(turns) | prs_metrics(verdicts) | selection_metrics(rows, verdicts)
    metrics |= unjudged_metrics(rows) | accepted_metrics(rows, verdicts)
    for name in metrics | gradient_metrics(rows, verdicts, 0.0) | waiting_metrics(rows):
        general = re.sub(r"turn_\d+", "turn_k", re.sub(r"fast@[\d.]+", "fast@p", name))
        general = re.sub(r"status/\w+", "status/<status>", general)
        prefix = re.match(r"kernel/turn_k/|kernel/best/|prs/kept/|prs/rejected/|groups/turn_k/|\w+/", general)[0]
        parted = f"`{prefix}`" in page and f"`{general.removeprefix(prefix)}`" in page
        assert parted or f"`{general}`" in page or general == "groups/turn_k/zero_gradient_fraction", name


def test_waiting_is_that_of_our_trajectories() -> None:
    judged = turn(correct())
    rows = [row("u", 0, judged, gym=3.0, generate=2.0), row("u", 1, judged, gym=1.0, generate=2.0), row("v", 0, gym=9)]
    assert waiting_metrics(rows) == {
        "kernel/gym_seconds/mean": 2.0,
        "kernel/gym_seconds/max": 3.0,
        "kernel/gym_share": 0.5,
    }
