# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.advantage.batches import build
from tests.advantage.oracle import naive_trloo
from verl_kernel.advantage.baselines import trloo


def test_a_recorded_call_can_be_recomputed(tmp_path: Path) -> None:
    batch = build([[1.0, 0.5], [0.0, 2.0]], [[(0, 2), (3, 5)], [(0, 1), (2, 6)]], ["a", "a"])
    config = {"trloo": {"record_dir": str(tmp_path / "calls")}}
    for _ in range(2):
        trloo(batch.rewards, batch.mask, index=batch.index, config=config)
    first, second = (np.load(path) for path in sorted((tmp_path / "calls").iterdir()))
    assert all(np.array_equal(first[name], second[name]) for name in ("rewards", "mask", "uid", "advantages"))
    assert np.array_equal(first["rewards"], batch.rewards.numpy())
    expected = naive_trloo(batch.turn_rewards, list(first["uid"]))
    for row, spans, values in zip(first["advantages"], batch.spans, expected, strict=True):
        assert [row[start] for start, _ in spans] == values
