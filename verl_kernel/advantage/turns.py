# SPDX-License-Identifier: Apache-2.0
"""Marks the turns of a trajectory in its token-level rewards, and reads them back.

A trajectory is one row. An estimator sees only `token_level_rewards`, `response_mask`, `uid` and the
configuration, and rejection sampling clears parts of `response_mask`. So the rewards carry the
boundaries: a turn ends at each token whose reward is not 0, and a reward of exactly 0 is written as
`ZERO_REWARD`, the smallest positive normal float32. A row without any marker is one turn. Tokens after
the last marker belong to the last turn. No other module knows this rule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from verl_kernel.errors import DataError

ZERO_REWARD = float(torch.finfo(torch.float32).tiny)


def place_turn_rewards(length: int, stops: Sequence[int], rewards: Sequence[float]) -> torch.Tensor:
    """Write one reward per turn at the last token of its turn.

    Args:
        length: number of response tokens T.
        stops: one past the last token of each turn, strictly increasing, in [1, T].
        rewards: reward of each turn; an absolute value below `ZERO_REWARD` is written as `ZERO_REWARD`.

    Returns:
        float32 tensor of shape (T,), 0 everywhere but at the turns' ends.

    Raises:
        DataError: the stops do not fit the response, or a reward is not finite.
    """
    if any(stop <= start for start, stop in zip([0, *stops], [*stops, length + 1], strict=True)):
        raise DataError(f"turns end at {list(stops)} in a response of {length} tokens: ends must increase within it")
    if not all(math.isfinite(reward) for reward in rewards):
        raise DataError(f"turn rewards are {list(rewards)}: a reward must be a finite number")
    scores = torch.zeros(length, dtype=torch.float32)
    for stop, reward in zip(stops, rewards, strict=True):
        # A reward of exactly 0 would erase the mark of the turn's end.
        scores[stop - 1] = reward if abs(reward) >= ZERO_REWARD else ZERO_REWARD
    return scores


@dataclass(frozen=True)
class Turns:
    """The turns of B trajectories of T response tokens, at most K turns each."""

    rewards: torch.Tensor
    """(B, K) float64; 0 where a row has no such turn."""
    lengths: torch.Tensor
    """(B, K) int64: tokens of each turn with the feedback before it; a row sums to T, 0 where there is no such turn."""
    present: torch.Tensor
    """(B, K) bool: whether the row reached the turn."""
    width: int
    """Number of response tokens, T."""

    def spread(self, values: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Give each token its turn's value, times `mask`: (B, K) to a new (B, T) tensor of the same dtype."""
        repeats = self.lengths.reshape(-1)
        if values.device.type != "cpu":
            tokens = torch.repeat_interleave(values.reshape(-1), repeats).view(len(values), self.width)
            return tokens if mask is None else tokens.mul_(mask)
        # On a CPU, NumPy needs no int64 index of B * T entries, uses large pages, and multiplies by an int64 mask
        # in a third of torch's time.
        flat = np.repeat(values.reshape(-1).numpy(), repeats.numpy())
        if mask is not None:
            np.multiply(flat, _numpy(mask), out=flat, casting="unsafe")
        return torch.from_numpy(flat).view(len(values), self.width)

    def touched(self, mask: torch.Tensor) -> torch.Tensor:
        """Whether a turn has a token in the mask: (B, T) to (B, K) bool."""
        lengths = _numpy(self.lengths)
        starts, filled = lengths.cumsum() - lengths, lengths > 0
        has_token = np.zeros(lengths.shape, dtype=bool)
        if filled.any():
            has_token[filled] = np.maximum.reduceat(_numpy(mask), starts[filled]) > 0
        return torch.from_numpy(has_token).view(self.lengths.shape).to(self.lengths.device)

    def index(self) -> torch.Tensor:
        """Return the turn number of each token, counted from 0: (B, T) int64."""
        return self.spread(torch.arange(self.rewards.shape[1], device=self.rewards.device).expand_as(self.rewards))


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    """Return a flat view; a copy only if the tensor is on another device or NumPy lacks its dtype."""
    flat = tensor.detach().reshape(-1).cpu()
    return (flat.float() if flat.is_floating_point() else flat).numpy()


def _marker_positions(flat: torch.Tensor) -> torch.Tensor:
    """Return the ascending positions of the elements that are not 0."""
    block = math.gcd(flat.numel(), 64)
    if flat.device.type != "cpu" or flat.dtype is not torch.float32 or block < 16:
        return flat.nonzero().squeeze(1)
    # Almost every block is all 0: skipping those, found by or-ing their bits, takes a third of nonzero's time.
    blocks = flat.detach().numpy().reshape(-1, block)
    hits = np.flatnonzero(np.bitwise_or.reduce(blocks.view(np.int64), axis=1))
    row, column = np.nonzero(blocks[hits])
    return torch.from_numpy(hits[row] * block + column)


def marked_stops(token_level_rewards: torch.Tensor) -> list[int]:
    """Return one past each marker's token in a row's rewards (T,), ascending: the `stops` of `place_turn_rewards`."""
    return [position + 1 for position in _marker_positions(token_level_rewards.contiguous()).tolist()]


def find_turns(token_level_rewards: torch.Tensor) -> Turns:
    """Recover the turns from rewards that `place_turn_rewards` wrote.

    Args:
        token_level_rewards: (B, T) float.
    """
    rows, width = token_level_rewards.shape
    flat = token_level_rewards.reshape(-1)
    markers = _marker_positions(flat)
    row = markers // max(width, 1)
    counts = torch.bincount(row, minlength=rows)
    turn = torch.arange(len(markers), device=flat.device) - (counts.cumsum(0) - counts).index_select(0, row)
    counts = counts.clamp_min(1)
    present = torch.arange(int(counts.max()) if rows else 1, device=flat.device) < counts[:, None]

    # Flat indices: on a busy CPU, torch's indexing by two tensors costs more than everything else here.
    slot = row * present.shape[1] + turn
    rewards = torch.zeros(present.shape, dtype=torch.float64, device=flat.device)
    values = flat.index_select(0, markers).double()
    rewards.view(-1).scatter_(0, slot, torch.where(values.abs() > ZERO_REWARD, values, 0.0))

    stops = torch.full(present.shape, width, dtype=torch.int64, device=flat.device)
    stops.view(-1).scatter_(0, slot, markers % max(width, 1) + 1)
    stops.scatter_(1, counts[:, None] - 1, width)
    return Turns(rewards, stops.diff(dim=1, prepend=torch.zeros_like(stops[:, :1])), present, width)
