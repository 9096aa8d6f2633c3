# SPDX-License-Identifier: Apache-2.0
"""Replacement of zero-variance groups by fresh prompts, through the eviction and refill of verl's replay buffer.

verl filters prompts whose rollouts agree in one number per trajectory. Its buffer gets them from `_dapo_filtered_keys`;
the override here returns `groups.zero_variance_prompts`, which compares every turn. verl still decides how many prompts
it then submits, and when: as many as were evicted in its asynchronous modes, twice as many in sync. The
other prompts wait until the batch is full. The prompts left over stay for later steps in the asynchronous modes; verl's
sync policy discards them, unless `group_carry_over` keeps them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from verl_kernel.sampler.groups import compared_rewards, prompt_of, zero_variance_prompts
from verl_kernel.sampler.options import GROUP_STD, PRSOptions
from verl_kernel.sampler.rows import is_unjudged, turns_of


class RefillingReplayBuffer(ReplayBuffer):  # type: ignore[misc]
    """verl's replay buffer; with `group_filter: refill` it replaces zero-variance groups.

    Args:
        options: the sampler's options.
        kwargs: arguments that verl passes to a sampler.
    """

    def __init__(self, options: PRSOptions, **kwargs: Any) -> None:
        self.options = options
        refill = options.group_filter == "refill"
        # Any name turns verl's filter on. It submits prompts in multiples of gen_batch_size.
        switches = {"filter_groups_metric": "kernel_turns", "gen_batch_size": 1} if refill else {}
        super().__init__(poll_interval=options.poll_interval_s, **switches, **kwargs)
        self._replaced = 0
        self._carried_over = 0

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[tq.KVBatchMeta, dict[str, Any]]:
        """Sample as verl does; in training, only from groups with variance until `group_refills` is used up."""
        if partition_id != "val":
            self.train_batch_size = batch_size  # verl's sync policy keeps this many prompts in flight while it refills.
        batch, metrics = super().sample(global_steps=global_steps, partition_id=partition_id, batch_size=batch_size)
        if partition_id != "val":
            self._replaced = 0
            if self.options.group_carry_over:
                metrics |= {"groups/carried_over": float(self._carried_over)}
        return batch, metrics

    def _select_prompt_uids(self, partition_id: str, sampleable_keys: set[str], batch_size: int) -> tuple[Any, ...]:
        """Select the oldest prompts; with `group_carry_over` the others are kept for the next step."""
        selected: tuple[Any, ...] = super()._select_prompt_uids(partition_id, sampleable_keys, batch_size)
        if partition_id != "val" and self.options.group_carry_over:
            self._carried_over = len(sampleable_keys) - len(selected[0])
            # verl clears from the queue all members of this same set object that are not selected.
            sampleable_keys.intersection_update(selected[0])
        return selected

    def _dapo_filtered_keys(self, partition_id: str) -> tuple[set[str], Counter[float]]:
        """Return the finished prompts that verl shall replace, and how many of them earned which reward."""
        if partition_id == "val" or self.options.group_filter != "refill":
            return set(), Counter()
        finished = self.finished_keys[partition_id]
        classified = self._dapo_classification_cache[partition_id]
        for uid in classified.keys() - finished:
            del classified[uid]
        classified.update(self._classify(partition_id, finished - classified.keys()))
        allowed = self.options.group_refills * (self.train_batch_size or len(self.prompt_global_steps[partition_id]))
        flat = [uid for uid, reward in classified.items() if reward is not None][: max(allowed - self._replaced, 0)]
        return set(flat), Counter(classified[uid] for uid in flat)

    def _classify(self, partition_id: str, uids: set[str]) -> dict[str, float | None]:
        """Return the reward of a rollout of each zero-variance group; `None` for the other prompts."""
        keys = [key for key in self.partitions[partition_id] if prompt_of(key) in uids]
        if not keys:
            return {}
        data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=["extra_fields"])
        entries = zip(keys, data["extra_fields"], strict=True)
        turns = {key: turns_of(entry) for key, entry in entries if not is_unjudged(entry)}
        spread = self.options.group_spread
        earned = {prompt_of(key): sum(compared_rewards(row, spread)) for key, row in turns.items()}
        flat = zero_variance_prompts(turns.items(), GROUP_STD, spread)
        return {uid: earned[uid] if flat.get(uid) else None for uid in map(prompt_of, keys)}

    def _evict_terminal_groups(self, *args: Any, **kwargs: Any) -> tuple[set[str], int, int, dict[str, Any]]:
        evicted: tuple[set[str], int, int, dict[str, Any]] = super()._evict_terminal_groups(*args, **kwargs)
        self._replaced += evicted[2]
        return evicted
