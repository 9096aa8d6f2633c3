# SPDX-License-Identifier: Apache-2.0
"""Metrics of a sampled batch: `kernel/*`, kept and rejected turns, groups without gradient, waiting times.

Conventions:
    A sample is one candidate. `kernel/...` is over the candidates of all turns, `kernel/turn_k/...` over the k-th
    candidate of each trajectory (k from 1), `kernel/best/...` over each trajectory's best one (`figures.attempts`).
    Rates divide by ALL samples: a candidate that failed, was not reached or could not be judged (`infra_error`)
    lowers a rate, so nothing is gained by failing to be measured. `fast@p` is the share of samples that are
    correct and more than p times as fast as the reference; `fast@p_sure` asks that of the lower end of the
    speedup's confidence interval, so that noise does not count (`figures.attempts`).
    Means and maxima are over the correct samples whose value is known. A value over no sample is left
    out, never 0.
    `hack_rate` is the share of decoys and hacks together, a sample that is both counted once.
    `kernel/coverage_unknown` is the share of samples that are correct but of unknown coverage, because the
    profiler saw nothing or an op has no price; they earn nothing for coverage.
    `kernel/novel`, `novel_bytes`, `novel_correct` and `novel_best` are shares of programs, of correct programs and of
    tasks with a correct program; left out unless `kernelgym.cold_start` names a cold start (`reward.novelty`).
    `kernel/simulated_clock` is the share of timed samples whose time is simulated, not measured, and
    `kernel/unvalidated_clock` that of a GPU whose simulated times were compared with no measurement.
    "Correct" is `EvalResult.rewarded`: a decoy or a hack is not correct.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain

from verl_kernel.env import EvalResult, EvalStatus
from verl_kernel.figures.attempts import Attempt, attempt_of, best, best_by_task
from verl_kernel.figures.figures import THRESHOLDS
from verl_kernel.reward.record import TurnRecord
from verl_kernel.sampler.groups import has_zero_variance, prompt_of
from verl_kernel.sampler.rejection import TurnDecision
from verl_kernel.sampler.rows import TrajectoryRow

INFRA_ERROR = EvalStatus.INFRA_ERROR


def kernel_metrics(trajectories: Sequence[Sequence[TurnRecord]]) -> dict[str, float]:
    """Return the metrics of a batch.

    Args:
        trajectories: the turns of each trajectory, in order. One without turns carries no kernel and is not counted.

    Returns:
        Name to value; empty where no trajectory has a turn.
    """
    trajectories = [turns for turns in trajectories if turns]
    results = [turn.result for turns in trajectories for turn in turns]
    if not results:
        return {}
    attempts = [[_attempt(turn) for turn in turns] for turns in trajectories]
    every = list(chain.from_iterable(attempts))
    metrics = _summary("kernel", every, len(every)) | _statuses(results) | _seconds(results)
    metrics["kernel/coverage_unknown"] = sum(
        attempt.correct and attempt.time_coverage is None for attempt in every
    ) / len(every)
    timed = [result for result in results if result.kernel_ms]
    metrics |= mean("kernel/simulated_clock", (result.is_simulated for result in timed))
    metrics |= mean("kernel/unvalidated_clock", (result.is_unvalidated for result in timed))
    metrics |= _novelty(every)
    for number in range(max(map(len, trajectories))):
        prefix = f"kernel/turn_{number + 1}"
        metrics |= _summary(prefix, [turns[number] for turns in attempts if len(turns) > number], len(trajectories))
        reached = (turns[number] for turns in trajectories if len(turns) > number)
        metrics |= mean(f"{prefix}/reward/mean", (t.reward for t in reached if t.result.status is not INFRA_ERROR))
    return metrics | quality("kernel/best", [best(turns) for turns in attempts], len(attempts))


def _attempt(turn: TurnRecord) -> Attempt:
    """Return what figures need of a turn; a task without a name goes by its text."""
    return attempt_of(turn.result, task=turn.result.task_id or turn.result.task_hash, novelty=turn.novelty)


def _summary(prefix: str, attempts: Sequence[Attempt], samples: int) -> dict[str, float]:
    counts = {
        "compiled_rate": sum(attempt.compiled for attempt in attempts),
        "decoy_rate": sum(attempt.is_decoy for attempt in attempts),
        "hacked_rate": sum(attempt.status == "hacking" for attempt in attempts),
        "hack_rate": sum(attempt.is_hack for attempt in attempts),
        "infra_error_rate": sum(attempt.lost for attempt in attempts),
    }
    return {f"{prefix}/{name}": count / samples for name, count in counts.items()} | quality(prefix, attempts, samples)


def quality(prefix: str, attempts: Sequence[Attempt], samples: int) -> dict[str, float]:
    """Return correct rate, `fast@p`, speedup and coverage of some candidates; rates divide by `samples`."""
    metrics = {f"{prefix}/correct_rate": sum(attempt.correct for attempt in attempts) / samples}
    for suffix, test in (("", Attempt.is_fast), ("_sure", Attempt.is_surely_fast)):
        metrics |= {
            f"{prefix}/fast@{p:g}{suffix}": sum(test(attempt, p) for attempt in attempts) / samples for p in THRESHOLDS
        }
    speedups = [attempt.speedup for attempt in attempts]
    metrics |= mean(f"{prefix}/speedup/mean", speedups) | maximum(f"{prefix}/speedup/max", speedups)
    for key in ("time_coverage", "number_coverage"):
        metrics |= mean(f"{prefix}/{key}/mean", (getattr(attempt, key) for attempt in attempts))
    return metrics


def _novelty(attempts: Sequence[Attempt]) -> dict[str, float]:
    """Return the shares of programs, of correct ones and of the tasks' best ones that are not in the cold start."""
    metrics = mean("kernel/novel", (attempt.novel for attempt in attempts))
    metrics |= mean("kernel/novel_bytes", (attempt.novel_bytes for attempt in attempts))
    metrics |= mean("kernel/novel_correct", (attempt.novel for attempt in attempts if attempt.correct))
    return metrics | mean("kernel/novel_best", (attempt.novel for attempt in best_by_task(attempts).values()))


def _statuses(results: Sequence[EvalResult]) -> dict[str, float]:
    return {
        f"kernel/status/{status.value}": sum(result.status is status for result in results) / len(results)
        for status in EvalStatus
    }


def _seconds(results: Sequence[EvalResult]) -> dict[str, float]:
    """Return judge seconds (`timing_s/kernel_eval`: their total over the batch) and seconds of waiting for a judge."""
    judging_s = [sum(result.stage_seconds.values()) for result in results if result.stage_seconds]
    waited = [result.queue_seconds for result in results]
    metrics = mean("kernel/eval_seconds/mean", judging_s) | maximum("kernel/eval_seconds/max", judging_s)
    metrics |= mean("kernel/queue_seconds/mean", waited) | maximum("kernel/queue_seconds/max", waited)
    return metrics | ({"timing_s/kernel_eval": sum(judging_s)} if judging_s else {})


def mean(name: str, values: Iterable[float | None]) -> dict[str, float]:
    """Return the mean of the known values under a name; empty if none is known."""
    numbers = [value for value in values if value is not None]
    return {name: sum(numbers) / len(numbers)} if numbers else {}


def maximum(name: str, values: Iterable[float | None]) -> dict[str, float]:
    """Return the largest known value under a name; empty if none is known."""
    numbers = [value for value in values if value is not None]
    return {name: max(numbers)} if numbers else {}


def selection_metrics(rows: Sequence[TrajectoryRow], verdicts: Sequence[Sequence[TurnDecision]]) -> dict[str, float]:
    """Return `prs/kept/*` and `prs/rejected/*`: rates over the turns of that kind, means over the correct ones."""
    judged = [
        pair for row, decisions in zip(rows, verdicts, strict=True) for pair in zip(row.turns, decisions, strict=True)
    ]
    metrics: dict[str, float] = {}
    for name, is_kept in (("kept", True), ("rejected", False)):
        turns = [turn for turn, verdict in judged if verdict.is_kept is is_kept]
        if turns:
            metrics |= quality(f"prs/{name}", [attempt_of(turn.result) for turn in turns], len(turns))
            metrics |= mean(f"prs/{name}/reward/mean", (turn.reward for turn in turns))
    return metrics


def gradient_metrics(
    rows: Sequence[TrajectoryRow], verdicts: Sequence[Sequence[TurnDecision]], std: float
) -> dict[str, float]:
    """Return metrics `groups/*` of the (prompt, turn) groups within which `trloo` and `turn_grpo` compare rollouts.

    A group has no gradient if its rollouts earned the same from that turn on (so that all advantages are 0 for any
    discount), if only one rollout reached the turn, or if all of its turns were rejected.

    Args:
        rows: the trajectories.
        verdicts: per trajectory, the decision on each turn.
        std: standard deviation of rewards up to which they count as equal.
    """
    tails: dict[tuple[str, int], list[list[float]]] = defaultdict(list)
    has_kept: dict[tuple[str, int], bool] = defaultdict(bool)
    for row, decisions in zip(rows, verdicts, strict=True):
        rewards = [turn.reward for turn in row.turns]
        for number, verdict in enumerate(decisions):
            tails[prompt_of(row.key), number].append(rewards[number:])
            has_kept[prompt_of(row.key), number] |= verdict.is_kept
    if not tails:
        return {}
    silent = {at: not has_kept[at] or len(group) < 2 or has_zero_variance(group, std) for at, group in tails.items()}
    metrics = {"groups/zero_gradient_fraction": sum(silent.values()) / len(silent)}
    for number in range(1 + max(number for _, number in tails)):
        own_turn = [at for at in tails if at[1] == number]
        prefix = f"groups/turn_{number + 1}"
        metrics[f"{prefix}/zero_gradient_fraction"] = sum(silent[at] for at in own_turn) / len(own_turn)
        metrics |= mean(f"{prefix}/return_std", (statistics.pstdev(map(sum, tails[at])) for at in own_turn))
    return metrics


def accepted_metrics(rows: Sequence[TrajectoryRow], verdicts: Sequence[Sequence[TurnDecision]]) -> dict[str, float]:
    """Return `rsft/accepted`: the share of turns that earn and stay in the loss, which are those `rsft` learns from."""
    pairs = ((row.turns, decisions) for row, decisions in zip(rows, verdicts, strict=True))
    return mean(
        "rsft/accepted",
        (t.earns and v.is_kept for turns, decisions in pairs for t, v in zip(turns, decisions, strict=True)),
    )


def unjudged_metrics(rows: Sequence[TrajectoryRow]) -> dict[str, float]:
    """Return `kernel/unjudged_fraction`: the share of trajectories, of any loop, with a turn that was not judged."""
    return {"kernel/unjudged_fraction": sum(row.unjudged for row in rows) / len(rows)} if rows else {}


def waiting_metrics(rows: Sequence[TrajectoryRow]) -> dict[str, float]:
    """Return metrics `kernel/gym_*`: how long trajectories waited for verdicts, and the share of their time."""
    waited = [row.gym_seconds for row in rows if row.turns]
    total = sum(waited) + sum(row.generate_seconds for row in rows if row.turns)
    metrics = mean("kernel/gym_seconds/mean", waited) | maximum("kernel/gym_seconds/max", waited)
    return metrics | ({"kernel/gym_share": sum(waited) / total} if total > 0 else {})
