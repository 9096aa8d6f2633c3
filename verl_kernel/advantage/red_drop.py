# SPDX-License-Identifier: Apache-2.0
"""`red_drop_balance`: as many bad answers as good ones (RED-Drop, arXiv 2509.24203).

In each group, the turns with returns below the mean are negatives, all others positives. Where negatives outnumber
positives, the surplus is drawn at random and dropped. The advantage of a kept turn is its return minus the mean of the
kept ones; that of a dropped turn is 0, but it stays in the denominators of the loss.

The draw must not depend on row numbers: verl may order and split a batch in any way, and it renames prompts in every
run. So the random number of a turn is a hash of the seed, of its row's content (lengths of turns, rewards, tokens that
count) and of its whole group. The same rollouts lose the same turns in any order; only among rows that look exactly
alike does the order decide which is dropped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from verl_kernel.advantage.groups import Groups, TurnBatch, group_turns
from verl_kernel.advantage.options import RecOptions
from verl_kernel.advantage.registry import estimator

_ROUNDING = 1e-9
"""Relative to a return's size: a return this close to the mean is not below it (three times 0.1 have a larger mean)."""


@estimator("red_drop_balance", grouped=True)
def red_drop_balance(batch: TurnBatch, algorithm: Mapping[str, Any]) -> torch.Tensor:
    """Return each turn's return minus the mean of the kept part of its group (RED-Drop)."""
    seed = RecOptions.from_node(algorithm.get("rec", None)).red_drop_seed
    groups = batch.groups()
    kept_groups = group_turns(batch.returns, batch.counted & ~dropped(batch, groups, seed), batch.index)
    return kept_groups.settle(batch.returns - kept_groups.means, batch.options.singleton)


def dropped(batch: TurnBatch, groups: Groups, seed: int) -> torch.Tensor:
    """Draw the turns that are dropped from their groups: (B, K) bool."""
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
    # Drops the surplus of negatives over positives, which is negatives - (members - negatives).
    lost = order[rank < 2 * negatives - members]
    out = np.zeros_like(negative)
    out[rows[lost], turns[lost]] = True
    return torch.from_numpy(out).to(groups.counted.device)


def _contents(batch: TurnBatch) -> list[int]:
    """Return a number for the content of each row."""
    tokens = batch.response_mask.sum(dim=1).long().tolist()
    rewards, lengths = batch.turns.rewards.cpu().numpy(), batch.turns.lengths.cpu().numpy()
    counts = batch.turns.present.sum(dim=1).tolist()
    # The last turn's length includes the row's padding, which depends on the batch.
    return [
        _hash(rewards[i, :count].tobytes() + lengths[i, : count - 1].tobytes() + str(tokens[i]).encode())
        for i, count in enumerate(counts)
    ]


def _lots(contents: list[int], prompts: np.ndarray, rows: np.ndarray, turns: np.ndarray, seed: int) -> np.ndarray:
    """Return a pseudo-random number for each turn at (rows, turns)."""
    hashes = np.array(contents, dtype=np.uint64)
    groups = np.zeros(int(prompts.max(initial=-1)) + 1, dtype=np.uint64)
    # Sums do not depend on the order of the rows, even where they wrap around.
    np.add.at(groups, prompts, hashes)
    keys = zip(groups[prompts[rows]], hashes[rows], turns, strict=True)
    return np.array([_hash(f"{seed} {group} {row} {turn}".encode()) for group, row, turn in keys], dtype=np.uint64)


def _hash(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
