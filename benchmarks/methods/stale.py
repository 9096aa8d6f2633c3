# SPDX-License-Identifier: Apache-2.0
"""Learning from samples of older weights: which loss bears how much staleness, on the quickstart, without a cluster.

    python benchmarks/methods/stale.py --quickstart outputs/quickstart

At every step the batch is sampled by the weights of `staleness` updates before. Runs that `--out`/stale.jsonl holds are
not repeated. At the end the last weights answer the held-out tasks.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import deque
from pathlib import Path
from typing import Any

import torch
from quickstart_play import CachedPool, load_model, load_prompts, rewards_of, sample
from recipe_update import Learner, composed, repeated

_SHARE = ["algorithm.topr.c=null"]
"""The rows are of a constant that is solved for the share of positives, no longer the default."""
ARMS = {
    "ppo_clip": ("PPO clip", ["mismatch=stale_clip"]),
    "no_clip": ("PPO without clip", [
        "mismatch=stale_clip", "actor_rollout_ref.actor.clip_ratio_low=1",
        "actor_rollout_ref.actor.clip_ratio_high=1e9", "actor_rollout_ref.actor.clip_ratio_c=1e9",
    ]),
    "tis": ("TIS", ["mismatch=tis"]),
    "rec_one_side": ("REC one-side", ["method=rec_one_side_no_is"]),
    "topr": ("TOPR, geometric", ["method=topr", *_SHARE, "actor_rollout_ref.actor.policy_loss.topr.ratio=geometric"]),
    "topr_sequence": ("TOPR, sequence", ["method=topr", *_SHARE]),
    "asymre": ("AsymRE", ["method=asymre"]),
}  # fmt: skip
STALENESS = (0, 2, 4)
ON_POLICY = ("no_clip", "tis")
"""Arms that are `ppo_clip` without staleness: a batch makes one update, so every ratio is 1."""
SEEDS = (0, 1, 2)
LEARNING_RATE = 1.0e-3
"""Three times the recipe's, with which four updates of age change so little that no loss would differ."""
STEPS, PROMPTS, GROUP = 24, 8, 8
HELD_OUT = 4
"""Answers to each held-out task."""


def run(arm: str, staleness: int, seed: int, folder: Path, judges: CachedPool) -> list[dict[str, Any]]:
    """Train once; a row per step, the last one with the held-out figures."""
    tokenizer, prompts = load_prompts(folder)
    held_out = load_prompts(folder, "val")[1]
    random.Random(seed).shuffle(prompts)
    generator = torch.Generator().manual_seed(seed)
    recipe = composed([*ARMS[arm][1], f"actor_rollout_ref.actor.optim.lr={LEARNING_RATE}"])
    learner, sampler = Learner(load_model(folder), recipe), load_model(folder)
    versions = deque([_weights(learner.model)], maxlen=staleness + 1)
    rows = []
    for step in range(1, STEPS + 1):
        sampler.load_state_dict(versions[0])
        batch = [prompts[(step * PROMPTS + number) % len(prompts)] for number in range(PROMPTS)]
        asked, groups = repeated(batch, GROUP)
        rollouts = sample(sampler, asked, tokenizer.eos_token_id, generator)
        results = judges.verdicts(rollouts)
        rewards = rewards_of(results)
        facts = learner.update(rollouts, learner.advantages(rollouts, rewards, groups))
        versions.append(_weights(learner.model))
        correct = sum(result.rewarded for result in results) / len(results)
        row = {"arm": arm, "staleness": staleness, "seed": seed, "step": step, "reward": float(rewards.mean())}
        rows.append(row | {"correct": correct, "entropy": rollouts.entropy} | facts)
    asked = repeated(held_out, HELD_OUT)[0]
    rollouts = sample(learner.model, asked, tokenizer.eos_token_id, torch.Generator().manual_seed(1000 + seed))
    results = judges.verdicts(rollouts)
    rows[-1] |= {
        "held_out_reward": float(rewards_of(results).mean()),
        "held_out_correct": sum(result.rewarded for result in results) / len(results),
        "held_out_entropy": rollouts.entropy,
    }
    return [{key: round(value, 5) if isinstance(value, float) else value for key, value in row.items()} for row in rows]


def _weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quickstart", type=Path, default=Path("outputs/quickstart"))
    parser.add_argument("--out", type=Path, default=Path("data/methods"))
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--memory", type=Path, default=Path("outputs/methods/verdicts.jsonl"))
    parser.add_argument("--judges", type=int, default=1)
    options = parser.parse_args()
    path = options.out / "stale.jsonl"
    done = set()
    if path.is_file():
        done = {(row["arm"], row["staleness"], row["seed"]) for row in map(json.loads, path.read_text().splitlines())}
    judges = CachedPool(load_prompts(options.quickstart)[0], options.memory, options.judges)
    todo = [(arm, staleness, seed) for seed in SEEDS for staleness in STALENESS for arm in options.arms]
    for arm, staleness, seed in todo:
        if (arm, staleness, seed) in done or (staleness == 0 and arm in ON_POLICY):
            continue
        start, before = time.monotonic(), judges.judged
        rows = run(arm, staleness, seed, options.quickstart, judges)
        with path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        print(
            f"{arm} {staleness} {seed}: {time.monotonic() - start:.0f} s, {judges.judged - before} judged, "
            f"reward {rows[0]['reward']:.2f} -> {rows[-1]['reward']:.2f}, held out {rows[-1]['held_out_reward']:.2f}",
            flush=True,
        )
    judges.close()


if __name__ == "__main__":
    main()
