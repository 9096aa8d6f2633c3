# SPDX-License-Identifier: Apache-2.0
"""Time of `trloo` over verl's `rloo_vectorized` on one batch, in one process, calls interleaved.

Prints one line per shape: rows x tokens, milliseconds of each, ratio of the medians (target: at most 1.3).
Usage: python benchmarks/bench_advantage.py [repeats]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

from verl_kernel.advantage.baselines import trloo

SHAPES = ((1024, 8192), (4096, 4096))
TURNS, ROLLOUTS = 3, 8


def make_batch(rows: int, width: int) -> dict[str, object]:
    generator = torch.Generator().manual_seed(0)
    ends = torch.rand(rows, TURNS, generator=generator).mul(width - 1).long().sort(dim=1).values
    rewards = torch.zeros(rows, width).scatter_(1, ends, torch.rand(rows, TURNS, generator=generator) + 0.1)
    mask = (torch.rand(rows, width, generator=generator) < 0.8).long()  # verl's masks are int64
    index = np.array([f"{row // ROLLOUTS:032x}" for row in range(rows)], dtype=object)
    return {"token_level_rewards": rewards, "response_mask": mask, "index": index, "config": None}


def seconds(function: Callable[..., object], batch: dict[str, object]) -> float:
    start = time.perf_counter()
    function(**batch)
    return time.perf_counter() - start


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 31
    rloo = get_adv_estimator_fn("rloo_vectorized")
    for rows, width in SHAPES:
        batch = make_batch(rows, width)
        seconds(rloo, batch), seconds(trloo, batch)
        pairs = [(seconds(rloo, batch), seconds(trloo, batch)) for _ in range(repeats)]
        theirs, ours = (statistics.median(times) * 1e3 for times in zip(*pairs, strict=True))
        print(f"{rows}x{width}: rloo_vectorized {theirs:.1f} ms, trloo {ours:.1f} ms, ratio {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
