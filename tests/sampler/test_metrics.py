# SPDX-License-Identifier: Apache-2.0
"""Metrics of a batch: what its kernels are worth, what rejection kept of it, and what no gradient is left of."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.reward.results import correct, failed, timed, turn
from verl_kernel.advantage.baselines import trloo
from verl_kernel.advantage.turns import place_turn_rewards
from verl_kernel.env.result import EvalResult, EvalStatus, Timing
from verl_kernel.reward.record import TurnRecord
from verl_kernel.sampler.metrics import (
    accepted_metrics,
    gradient_metrics,
    kernel_metrics,
    selection_metrics,
    unjudged_metrics,
    waiting_metrics,
)
from verl_kernel.sampler.rejection import TurnDecision, prs_metrics
from verl_kernel.sampler.rows import TrajectoryRow

RESULTS = st.builds(correct, st.none() | st.floats(0.1, 4), st.none() | st.floats(0, 1)) | st.sampled_from(
    [failed(status.value, correctness=None) for status in EvalStatus if status is not EvalStatus.OK]
)
TRAJECTORIES = st.lists(st.lists(RESULTS.map(turn), max_size=3), max_size=6)


def judged(result: EvalResult, task: str, novel: bool | None, *, has_code: bool = True) -> TurnRecord:
    facts = {"code": "x = 1" if has_code else None, "novel": novel, "novel_bytes": novel}
    return turn(result.model_copy(update={"task_id": task})).model_copy(update=facts)


ONCE = Timing(median=1.0, p20=1.0, p80=1.0, mean=1.0, n=1)
SOURCES = ("simulated", "simulated_unvalidated", "simulated_unvalidated", "cuda_event")
DECOY = correct(9.0).model_copy(update={"decoy_kernel": True})
LOST = turn(failed("infra_error", correctness=None))
WRONG = turn(failed())

CASES: dict[str, tuple[list[list[TurnRecord]], dict[str, float]]] = {
    "rates are over all samples": (
        [
            [turn(failed("compile_error", compiled=False)), turn(correct(2.0, 0.5))],
            [turn(correct(1.2, 0.1)), turn(failed("timeout", compiled=True))],
            [turn(failed("decoy", compiled=True, decoy_kernel=True))],
        ],
        {
            "correct_rate": 2 / 5, "compiled_rate": 4 / 5, "decoy_rate": 1 / 5, "fast@1": 2 / 5, "fast@1.2": 1 / 5,
            "fast@1.5": 1 / 5, "fast@2": 0, "speedup/mean": 1.6, "speedup/max": 2.0, "time_coverage/mean": 0.3,
            "status/timeout": 1 / 5,
        },
    ),
    "an early end counts in later turns": ([[turn(correct(), reward=1.5), turn(correct(2.5), reward=2.0)], [WRONG]], {
        "turn_1/correct_rate": 0.5, "turn_2/correct_rate": 0.5, "turn_2/fast@2": 0.5, "turn_1/reward/mean": 0.75,
        "turn_2/reward/mean": 2.0,
    }),
    "best is the fastest correct turn": (
        [[turn(correct(0.5, 0.9)), turn(correct(1.7, 0.2)), WRONG], [WRONG, turn(failed("hacking", speedup=99.0))]],
        {"best/correct_rate": 0.5, "best/fast@1.5": 0.5, "best/speedup/mean": 1.7, "best/time_coverage/mean": 0.2},
    ),
    "what cannot earn is not correct however fast": (
        [[turn(DECOY), turn(failed("hacking", speedup=9.0, correctness=True))]],
        {"correct_rate": 0, "fast@1": 0, "decoy_rate": 0.5, "hacked_rate": 0.5, "hack_rate": 1},
    ),
    "a sample that is both decoy and hack is one hack": (
        [[turn(failed("hacking", decoy_kernel=True))], [WRONG]], {"hack_rate": 0.5, "turn_1/hack_rate": 0.5},
    ),
    "what is sure is counted beside the point": (
        [[turn(timed(1.6, 1.1))], [turn(timed(3.0, None))], [turn(correct(1.3))], [WRONG]],
        {"fast@1.2": 0.75, "fast@1.2_sure": 0.25, "fast@1_sure": 0.5, "best/fast@2_sure": 0},
    ),
    "an unknown coverage is counted": (
        [[turn(timed(2.0, 1.9, time_coverage=None)), turn(correct()), *[turn(failed(time_coverage=None))] * 2]],
        {"coverage_unknown": 0.25},
    ),
    "times that nothing measured confirms are counted": (
        [[turn(correct(timing_source=source, kernel_ms=ONCE))] for source in SOURCES],
        {"simulated_clock": 0.75, "unvalidated_clock": 0.5},
    ),
    "what was not judged lowers rates and has no reward": (
        [[turn(correct(2.0), reward=3.0), LOST], [turn(correct(), reward=1.0)], [LOST]],
        {
            "infra_error_rate": 0.5, "status/infra_error": 0.5, "turn_1/infra_error_rate": 1 / 3,
            "turn_2/infra_error_rate": 1 / 3, "turn_1/correct_rate": 2 / 3, "correct_rate": 0.5,
            "turn_1/reward/mean": 2,
        },
    ),
    "seconds of judging and waiting": (
        [
            [turn(correct(stage_seconds={"load": 0.5, "run": 1.5}, queue_seconds=0.25))],
            [turn(correct(stage_seconds={"load": 1.0}, queue_seconds=0.75))],
        ],
        {"eval_seconds/mean": 1.5, "eval_seconds/max": 2.0, "queue_seconds/max": 0.75},
    ),
    "an answer without a program is not counted as one": (
        [[judged(failed(), "a", False, has_code=False), judged(correct(), "a", True)]], {"novel": 1.0},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("trajectories", "expected"), CASES.values(), ids=CASES)
def test_metrics_of_kernels(trajectories, expected):
    metrics = kernel_metrics(trajectories)
    assert {name: metrics[f"kernel/{name}"] for name in expected} == pytest.approx(expected)


def test_what_does_not_exist_has_no_metric():
    assert "kernel/turn_3/correct_rate" not in kernel_metrics(CASES["an early end counts in later turns"][0])
    unjudged = kernel_metrics(CASES["what was not judged lowers rates and has no reward"][0])
    assert "kernel/turn_2/reward/mean" not in unjudged
    assert kernel_metrics(CASES["seconds of judging and waiting"][0])["timing_s/kernel_eval"] == 3.0


def test_unknown_is_left_out_and_never_zero():
    metrics = kernel_metrics([[turn(correct(None, None))], [turn(failed())]])
    assert metrics["kernel/correct_rate"] == 0.5
    unknown = [name for name in metrics if "coverage" in name or "speedup" in name or "seconds" in name]
    assert unknown == ["kernel/coverage_unknown"]
    assert metrics["kernel/coverage_unknown"] == 0.5
    assert kernel_metrics([]) == kernel_metrics([[], []]) == {}


@given(TRAJECTORIES)
def test_on_a_simulated_clock_the_point_is_sure(trajectories):
    metrics = kernel_metrics(trajectories)
    sure = {name: value for name, value in metrics.items() if name.endswith("_sure")}
    assert all(value == metrics[name.removesuffix("_sure")] for name, value in sure.items())
    assert bool(sure) == bool(metrics)


@given(TRAJECTORIES)
def test_any_batch_gives_finite_numbers(trajectories):
    metrics = kernel_metrics(trajectories)
    assert all(isinstance(value, float) and math.isfinite(value) for value in metrics.values())
    shares = {name: v for name, v in metrics.items() if name.endswith("_rate") or "fast@" in name or "/status/" in name}
    assert all(0 <= value <= 1 for value in shares.values())
    if metrics:
        assert sum(value for name, value in metrics.items() if "/status/" in name) == pytest.approx(1)
        assert metrics["kernel/fast@2"] <= metrics["kernel/fast@1"] <= metrics["kernel/correct_rate"]
        assert metrics["kernel/best/correct_rate"] >= metrics["kernel/turn_1/correct_rate"]


def share(values: list[bool]) -> float | None:
    return sum(values) / len(values) if values else None


def novel_best(turns: list[TurnRecord]) -> list[bool]:
    """For each task, whether its fastest right program is novel; unknown speedups come last, and the earliest first."""
    found = []
    for task in ("a", "b"):
        own = [one for one in turns if one.result.rewarded and one.result.task_id == task]
        if own:
            fastest = max((one.result.speedup or 0.0) for one in own)
            found.append(next(bool(one.novel) for one in own if (one.result.speedup or 0.0) == fastest))
    return found


@given(st.lists(st.lists(st.builds(judged, RESULTS, st.sampled_from("ab"), st.booleans()), max_size=3), max_size=6))
def test_novelty_is_counted_over_programs(trajectories):
    metrics = kernel_metrics(trajectories)
    turns = [one for own in trajectories for one in own]
    assert metrics.get("kernel/novel") == share([bool(one.novel) for one in turns])
    assert metrics.get("kernel/novel_bytes") == share([bool(one.novel_bytes) for one in turns])
    assert metrics.get("kernel/novel_correct") == share([bool(one.novel) for one in turns if one.result.rewarded])
    assert metrics.get("kernel/novel_best") == share(novel_best(turns))


@pytest.mark.slow
@given(TRAJECTORIES)
def test_without_a_cold_start_there_is_no_metric_of_novelty(trajectories):
    assert not [name for name in kernel_metrics(trajectories) if "novel" in name]


KEPT, REJECTED = TurnDecision(1.0, True), TurnDecision(0.0, False)


def row(uid: str, session: int, *turns: TurnRecord, gym: float = 0.0, generate: float = 0.0) -> TrajectoryRow:
    return TrajectoryRow(f"{uid}_{session}_0", "name", 1, turns, torch.ones(4), False, gym, generate)


def earned(uid: str, *rollouts: list[float]) -> list[TrajectoryRow]:
    return [row(uid, i, *(turn(failed(), reward=r) for r in rewards)) for i, rewards in enumerate(rollouts)]


def keep_all(rows: list[TrajectoryRow]) -> list[list[TurnDecision]]:
    return [[KEPT for _ in row.turns] for row in rows]


def test_quality_of_kept_and_of_rejected_turns():
    rows = [
        row("u", 0, turn(correct(2.0, 0.9), reward=2.0), turn(correct(1.0, 0.1), reward=1.0)),
        row("u", 1, turn(failed()), turn(correct(3.0, 0.5), reward=3.0)),
    ]
    metrics = selection_metrics(rows, [[KEPT, REJECTED], [KEPT, KEPT]])
    assert (metrics["prs/kept/correct_rate"], metrics["prs/rejected/correct_rate"]) == (pytest.approx(2 / 3), 1)
    assert (metrics["prs/kept/speedup/mean"], metrics["prs/rejected/speedup/mean"]) == (2.5, 1.0)
    assert (metrics["prs/kept/time_coverage/mean"], metrics["prs/rejected/time_coverage/mean"]) == (0.7, 0.1)
    assert (metrics["prs/kept/reward/mean"], metrics["prs/rejected/reward/mean"]) == (pytest.approx(5 / 3), 1.0)
    assert (metrics["prs/kept/fast@1.2"], metrics["prs/rejected/fast@1.2"]) == (pytest.approx(2 / 3), 0)


def test_no_turn_of_a_kind_is_no_metric_of_it():
    rows = [row("u", 0, turn(failed()))]
    assert not [name for name in selection_metrics(rows, keep_all(rows)) if name.startswith("prs/rejected")]
    assert selection_metrics([], []) == gradient_metrics([], [], 0.0) == waiting_metrics([]) == {}


def test_groups_without_gradient_are_counted_by_turn():
    rows = [*earned("a", [0.0, 1.0], [1.0, 1.0]), *earned("b", [1.0, 2.0], [1.0, 0.0])]
    metrics = gradient_metrics(rows, keep_all(rows), 1e-3)
    assert metrics["groups/zero_gradient_fraction"] == 0.25
    assert metrics["groups/turn_1/zero_gradient_fraction"] == 0
    assert metrics["groups/turn_2/zero_gradient_fraction"] == 0.5
    assert metrics["groups/turn_1/return_std"] == pytest.approx((0.5 + 1.0) / 2)
    assert metrics["groups/turn_2/return_std"] == pytest.approx(0.5)


def test_accepted_turns_earn_and_stay():
    rows = [row("u", 0, turn(correct()), turn(correct())), row("u", 1, turn(failed())), row("u", 2)]
    assert accepted_metrics(rows, [[KEPT, REJECTED], [KEPT], []]) == {"rsft/accepted": pytest.approx(1 / 3)}
    decoy = correct().model_copy(update={"decoy_kernel": True})
    assert accepted_metrics([row("u", 0, turn(decoy))], [[KEPT]]) == {"rsft/accepted": 0}
    paid = turn(decoy).model_copy(update={"pay_decoys": True})
    assert accepted_metrics([row("u", 0, paid)], [[KEPT]]) == {"rsft/accepted": 1}
    assert accepted_metrics([row("u", 0)], [[]]) == {}


def test_a_rejected_or_lone_group_has_no_gradient():
    rows = earned("a", [0.0, 1.0], [1.0])
    assert gradient_metrics(rows, keep_all(rows), 1e-3)["groups/turn_2/zero_gradient_fraction"] == 1
    rejected = [[REJECTED, KEPT], [REJECTED]]
    assert gradient_metrics(rows, rejected, 1e-3)["groups/turn_1/zero_gradient_fraction"] == 1


@given(st.lists(st.tuples(*[st.sampled_from([0.0, 0.5, 2.0])] * 2).map(list), min_size=2, max_size=4))
def test_the_share_is_that_of_trloos_advantages(rewards):
    scores = torch.stack([place_turn_rewards(4, [2, 4], one) for one in rewards])
    uid = np.array(["u"] * len(rewards), dtype=object)
    # With this discount no two different futures of these rewards are worth the same.
    found, _ = trloo(scores, torch.ones(len(rewards), 4), uid, {"trloo": {"gamma": 0.37}})
    silent = [not found[:, start].abs().gt(1e-6).any() for start in (0, 2)]
    rows = earned("u", *rewards)
    assert gradient_metrics(rows, keep_all(rows), 0.0)["groups/zero_gradient_fraction"] == sum(silent) / 2


def test_every_metric_of_ours_is_documented():
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


def test_waiting_is_that_of_our_trajectories():
    judged = turn(correct())
    rows = [row("u", 0, judged, gym=3.0, generate=2.0), row("u", 1, judged, gym=1.0, generate=2.0), row("v", 0, gym=9)]
    assert waiting_metrics(rows) == {
        "kernel/gym_seconds/mean": 2.0, "kernel/gym_seconds/max": 3.0, "kernel/gym_share": 0.5,
    }  # fmt: skip
