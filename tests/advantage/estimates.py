# SPDX-License-Identifier: Apache-2.0
"""Calls of the estimators as verl makes them, and their answers by turn."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from tests.advantage.batches import Batch
from verl_kernel.advantage import ESTIMATORS


def estimate(
    name: str, batch: Batch, *, rec: dict[str, Any] | None = None, topr: dict[str, Any] | None = None, **trloo_node: Any
) -> torch.Tensor:
    nodes = {"trloo": trloo_node, "rec": rec or {}, "topr": topr or {}}
    config = OmegaConf.create({"gamma": 1.0, "use_kl_in_reward": False, **nodes})
    advantages, returns = ESTIMATORS[name](batch.rewards, batch.mask, index=batch.index, config=config)
    assert torch.equal(advantages, returns)
    return advantages


def per_turn(batch: Batch, advantages: torch.Tensor) -> list[list[float]]:
    """One value per turn, after checking that all its tokens carry the same."""
    values: list[list[float]] = []
    for i, row in enumerate(batch.spans):
        values.append([])
        for start, stop in row:
            tokens = advantages[i, start:stop]
            assert (tokens == tokens[0]).all()
            values[i].append(tokens[0].item())
    return values


def assert_close(actual: list[list[float]], expected: list[list[float]]) -> None:
    assert [len(row) for row in actual] == [len(row) for row in expected]
    flat = [value for row in expected for value in row]
    assert [value for row in actual for value in row] == pytest.approx(flat, rel=1e-5, abs=1e-6)
