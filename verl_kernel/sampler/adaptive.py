# SPDX-License-Identifier: Apache-2.0
"""The sampler's part of Reinforce-Ada: pools for the estimator, counts for the next budgets, metrics `ada/*`.

The agent loop worker puts a pool's statistics into the tag of its prompt. verl clears the tag when it makes the batch,
so they are read just before. Counts come from the rows of the batch; unjudged ones are not counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import transfer_queue as tq

from verl_kernel.adaptive import PoolStatistics
from verl_kernel.adaptive.budgets import PROMPT_NAME
from verl_kernel.adaptive.pool import TAG
from verl_kernel.adaptive.run_state import RunState, current
from verl_kernel.reward.record import TurnRecord, judging_cost
from verl_kernel.sampler.groups import has_zero_variance, prompt_of
from verl_kernel.sampler.metrics import maximum, mean
from verl_kernel.sampler.options import GROUP_STD
from verl_kernel.sampler.refill import RefillingReplayBuffer
from verl_kernel.sampler.rows import TrajectoryRow, fields_of

_REASONS = ("met", "limit", "stalled")


class AdaptiveReplayBuffer(RefillingReplayBuffer):
    """The refilling buffer; if a run uses Reinforce-Ada, it also reads the pools and keeps the counts."""

    def _materialize_batch(self, partition_id: str, selected_prompt_uids: list[str], *args: Any) -> tq.KVBatchMeta:
        """Make the batch as verl does, after reading the pools of its prompts."""
        state = current()
        if state is not None and state.options.in_rounds and partition_id != "val":
            tags = (tq.kv_list() or {}).get(partition_id, {})
            pool_tags = {uid: tags.get(uid, {}).get(TAG) for uid in selected_prompt_uids}
            state.pools = {uid: PoolStatistics.from_tag(tag) for uid, tag in pool_tags.items() if tag}
        return super()._materialize_batch(partition_id, selected_prompt_uids, *args)

    def _adapt(self, batch: tq.KVBatchMeta, rows: Sequence[TrajectoryRow], step: int) -> dict[str, float]:
        """Count the rollouts of a batch that verl has made, and return metrics."""
        state = current()
        if state is None or state.options.sampling == "none":
            return {}
        if state.options.in_rounds:
            missing = {prompt_of(row.key) for row in rows} - state.pools.keys()
            metrics = pool_metrics(list(state.pools.values()), GROUP_STD)
            return metrics | {"ada/missing_pools": float(len(missing))}
        return _count(batch, rows, step, state) | _cost([turn for row in rows for turn in row.turns], len(rows))


def pool_metrics(pools: Sequence[PoolStatistics], std: float) -> dict[str, float]:
    """Return metrics `ada/*` of the pools from which a batch was chosen.

    Args:
        pools: one per prompt.
        std: as in `has_zero_variance`.
    """
    if not pools:
        return {}
    draws = [pool.draws for pool in pools]
    metrics = {f"ada/exit/{name}": sum(pool.reason == name for pool in pools) / len(pools) for name in _REASONS}
    metrics |= mean("ada/draws/mean", draws) | maximum("ada/draws/max", draws)
    metrics |= {
        "ada/draws/total": float(sum(draws)),
        "ada/judge_calls/total": float(sum(pool.judge_calls for pool in pools)),
        "ada/judge_seconds/total": sum(pool.judge_seconds for pool in pools),
        "ada/unjudged_draws/total": float(sum(pool.draws - len(pool.rewards) for pool in pools)),
        "ada/zero_gradient_fraction": sum(has_zero_variance(pool.rewards, std) for pool in pools) / len(pools),
    }
    return metrics | mean("ada/pool_p/mean", (pool.share for pool in pools if pool.rewards))


def _count(batch: tq.KVBatchMeta, rows: Sequence[TrajectoryRow], step: int, state: RunState) -> dict[str, float]:
    """Add a batch's rollouts to the run's counts, keep the pass rates, and return metrics of the budgets."""
    names = [PROMPT_NAME, "extra_fields"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
    prompts = [str(getattr(name, "data", name)) for name in data[PROMPT_NAME]]
    batch_counts: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    passed: dict[str, list[bool]] = defaultdict(list)
    for row, name, entry in zip(rows, prompts, data["extra_fields"], strict=True):
        if not row.unjudged:
            rollouts, positives = batch_counts[name]
            info = fields_of(fields_of(entry).get("reward_extra_info"))
            is_positive = state.options.is_positive(info)
            batch_counts[name] = rollouts + 1, positives + is_positive
            passed[prompt_of(row.key)].append(is_positive)
    state.pass_rates = {uid: sum(outcomes) / len(outcomes) for uid, outcomes in passed.items()}
    before = [state.counts.share(name) for name in batch_counts]
    state.count(step, batch_counts)
    per_prompt: dict[str, int] = defaultdict(int)
    for row in rows:
        per_prompt[prompt_of(row.key)] += 1
    sizes = list(per_prompt.values())
    metrics = mean("ada/budget/mean", sizes) | maximum("ada/budget/max", sizes) | {"ada/budget/min": float(min(sizes))}
    return metrics | mean("ada/expected_p/mean", before)


def _cost(turns: Sequence[TurnRecord], draws: int) -> dict[str, float]:
    """Return metrics of the cost of a batch without pools."""
    calls, seconds = judging_cost(turns)
    return {
        "ada/draws/total": float(draws),
        "ada/judge_calls/total": float(calls),
        "ada/judge_seconds/total": seconds,
    }
