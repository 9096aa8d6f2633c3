# SPDX-License-Identifier: Apache-2.0
"""`red_drop_balance`: as many bad answers as good ones (RED-Drop, arXiv 2509.24203).

In each group, the turns with returns below the mean are negatives, all others positives. Where negatives outnumber
positives, as many as there are too many are drawn and dropped: the others' advantage is their return minus the mean of
those that are kept, and a dropped one's is 0. It stays in the denominators of the loss.

The draw knows no row numbers: verl may order and split a batch as it likes, and gives prompts new names in every run. A
turn's lot is a hash of the seed, of what the estimator sees of its row (lengths of turns, rewards, tokens that count),
and of its whole group. So the same rollouts lose the same turns in any order; of rows that look exactly alike,
the order decides which is dropped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from verl_kernel.advantage.groups import Groups, TurnBatch, group_turns
from verl_kernel.advantage.rec_options import RecOptions
from verl_kernel.advantage.registry import estimator

_ROUNDING = 1e-9
"""Of a return's size: closer to the mean is not below it, as with three returns of 0.1, whose mean rounds up."""


@estimator("red_drop_balance", grouped=True)
def red_drop_balance(batch: TurnBatch, algorithm: Mapping[str, Any]) -> torch.Tensor:
    """Return minus the mean of what is kept of the group (RED-Drop)."""
    seed = RecOptions.from_node(algorithm.get("rec", None)).red_drop_seed
    groups = batch.groups()
    kept = group_turns(batch.returns, batch.counted & ~dropped(batch, groups, seed), batch.index)
    return kept.settle(batch.returns - kept.means, batch.options.singleton)


def dropped(batch: TurnBatch, groups: Groups, seed: int) -> torch.Tensor:
    """The turns that are drawn out of their groups: (B, K) bool."""
    margin = _ROUNDING * (1 + groups.returns.abs())
    negative = (groups.counted & (groups.means - groups.returns > margin)).cpu().numpy()
    prompts = groups.prompts.cpu().numpy()
    rows, turns = np.nonzero(negative)
    cells = prompts[rows] * negative.shape[1] + turns
    lots = _lots(_contents(batch), prompts, rows, turns, seed)
    order = np.lexsort((lots, cells))
    _, starts, counts = np.unique(cells[order], return_index=True, return_counts=True)
    rank = np.arange(len(order)) - np.repeat(starts, counts)
    members = groups.sizes.cpu().numpy()[rows, turns][order]
    negatives = np.repeat(counts, counts)
    lost = order[rank < 2 * negatives - members]
    out = np.zeros_like(negative)
    out[rows[lost], turns[lost]] = True
    return torch.from_numpy(out).to(groups.counted.device)


def _contents(batch: TurnBatch) -> list[int]:
    """A number for what each row holds."""
    tokens = batch.response_mask.sum(dim=1).long().tolist()
    rewards, lengths = batch.turns.rewards.cpu().numpy(), batch.turns.lengths.cpu().numpy()
    counts = batch.turns.present.sum(dim=1).tolist()
    # The last turn's length holds the row's padding, which its batch decides.
    return [
        _hash(rewards[i, :count].tobytes() + lengths[i, : count - 1].tobytes() + str(tokens[i]).encode())
        for i, count in enumerate(counts)
    ]


def _lots(contents: list[int], prompts: np.ndarray, rows: np.ndarray, turns: np.ndarray, seed: int) -> np.ndarray:
    """A number for each turn at (rows, turns)."""
    own = np.array(contents, dtype=np.uint64)
    groups = np.zeros(int(prompts.max(initial=-1)) + 1, dtype=np.uint64)
    # Sums, which wrap around, have no order.
    np.add.at(groups, prompts, own)
    keys = zip(groups[prompts[rows]], own[rows], turns, strict=True)
    return np.array([_hash(f"{seed} {group} {row} {turn}".encode()) for group, row, turn in keys], dtype=np.uint64)


def _hash(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
