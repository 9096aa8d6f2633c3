# SPDX-License-Identifier: Apache-2.0
"""Reinforce-Ada against plain groups and group filters at equal judge calls, on hard tasks of the quickstart.

    python benchmarks/methods/pass_rates.py --quickstart outputs/quickstart
    python benchmarks/methods/ada.py --quickstart outputs/quickstart

The tasks are those whose rate of positives at the start lies in `RATES`, and the reward is the paper's: 1 for a
positive answer (correct and at least as fast as the reference), else 0. An arm trains until it has asked the judges
`CALLS` times; on the way and at the end its weights answer all of these tasks, which is not counted. Runs that
`--out`/ada.jsonl holds are not repeated.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import torch
from quickstart_play import CachedPool, Prompt, Rollouts, joined, load_model, load_prompts, rewards_of, sample, selected
from recipe_update import Learner, composed, repeated

from verl_kernel.adaptive import AdaOptions, Counts, Pool, budgets, run_state
from verl_kernel.adaptive.options import PRIOR
from verl_kernel.env import EvalResult
from verl_kernel.sampler.groups import has_zero_variance

RATES = (0.02, 0.25)
CALLS, EVALUATIONS = 640, 4
PROMPTS, GROUP = 8, 8
SEEDS = (0, 1, 2)
FLAT = 1e-3
"""Standard deviation of rewards up to which a group has no gradient, as `sampler.options.GROUP_STD`."""
REFILLS = 3
"""Batches of fresh prompts that `refill` asks for in a step."""


@dataclass
class Scene:
    """What an arm works with."""

    model: Any
    judges: CachedPool
    end: int
    prompts: list[Prompt]
    generator: torch.Generator
    rng: random.Random
    options: AdaOptions
    counts: Counts
    calls: int = 0
    cursor: Any = field(default_factory=count)

    def next_prompts(self, number: int) -> list[Prompt]:
        """The next prompts, in the run's order."""
        return [self.prompts[next(self.cursor) % len(self.prompts)] for _ in range(number)]

    def play(self, prompts: list[Prompt]) -> tuple[Rollouts, torch.Tensor, list[bool]]:
        """Answers, their rewards, and which are positive; every one is a call of the judges."""
        rollouts = sample(self.model, prompts, self.end, self.generator)
        positive = positives(self.judges.verdicts(rollouts))
        self.calls += len(positive)
        return rollouts, torch.tensor(positive, dtype=torch.float32), positive


Batch = tuple[Rollouts, torch.Tensor, list[str]]
"""Answers, rewards, and the group of each."""


def plain(scene: Scene, n: int, prompts: int) -> Batch:
    """Answers to the next prompts, n to each."""
    rows, groups = repeated(scene.next_prompts(prompts), n)
    rollouts, rewards, _ = scene.play(rows)
    return rollouts, rewards, groups


def drop(scene: Scene) -> Batch:
    """Plain groups, without those whose rewards agree."""
    rollouts, rewards, groups = plain(scene, GROUP, PROMPTS)
    flat = flat_groups(rewards, groups)
    rows = [row for row, group in enumerate(groups) if group not in flat] or list(range(len(groups)))
    return selected(rollouts, rows), rewards[rows], [groups[row] for row in rows]


def refill(scene: Scene) -> Batch:
    """As `drop`, with other prompts in place of those that were dropped."""
    rollouts, rewards, groups = drop(scene)
    for batch in range(REFILLS):
        missing = PROMPTS - len(set(groups))
        if missing <= 0:
            break
        more, earned, names = plain(scene, GROUP, missing)
        flat = flat_groups(earned, names)
        rows = [row for row, name in enumerate(names) if name not in flat]
        if rows:
            rollouts = joined([rollouts, selected(more, rows)])
            rewards = torch.cat([rewards, earned[rows]])
            groups = [*groups, *(f"{batch}.{names[row]}" for row in rows)]
    return rollouts, rewards, groups


def est(scene: Scene) -> Batch:
    """A budget per prompt, by what earlier steps found out."""
    prompts = scene.next_prompts(PROMPTS)
    names = [prompt.task.task_id for prompt in prompts]
    options = scene.options
    sizes = budgets(
        [scene.counts.share(name) for name in names], PROMPTS * GROUP, options.n_min, options.n_max, options.epsilon
    )
    rows = [prompt for prompt, size in zip(prompts, sizes, strict=True) for _ in range(size)]
    rollouts, rewards, positive = scene.play(rows)
    groups = [str(number) for number, size in enumerate(sizes) for _ in range(size)]
    hits = {
        name: (size, sum(one for one, group in zip(positive, groups, strict=True) if group == str(number)))
        for number, (name, size) in enumerate(zip(names, sizes, strict=True))
    }
    scene.counts.update(hits)
    return rollouts, rewards, groups


def seq(scene: Scene) -> Batch:
    """Rounds of answers until a prompt's pool has what its exit rule asks for; then `GROUP` of them."""
    prompts, rule = scene.next_prompts(PROMPTS), scene.options.exit_rule(GROUP)
    pools = [Pool(rule) for _ in prompts]
    found: list[list[Batch]] = [[] for _ in prompts]
    while active := [number for number, pool in enumerate(pools) if not pool.done()]:
        sizes = {number: pools[number].next_round() for number in active}
        rollouts, rewards, positive = scene.play([prompts[number] for number in active for _ in range(sizes[number])])
        start = 0
        for number in active:
            rows = list(range(start, start + sizes[number]))
            start += sizes[number]
            pools[number].add([[float(rewards[row])] for row in rows], [positive[row] for row in rows])
            found[number].append((selected(rollouts, rows), rewards[rows], [str(number)] * len(rows)))
    parts, state = [], run_state.current()
    for number, (pool, own) in enumerate(zip(pools, found, strict=True)):
        kept = pool.select(GROUP, scene.rng)
        rollouts, rewards = joined([part[0] for part in own]), torch.cat([part[1] for part in own])
        parts.append((selected(rollouts, kept), rewards[kept], [str(number)] * len(kept)))
        state.pools[str(number)] = pool.statistics()
    groups = [name for part in parts for name in part[2]]
    return joined([part[0] for part in parts]), torch.cat([part[1] for part in parts]), groups


ARMS: dict[str, tuple[str, list[str], Callable[[Scene], Batch]]] = {
    "plain_8": ("n = 8", [], lambda scene: plain(scene, GROUP, PROMPTS)),
    "plain_16": ("n = 16", [], lambda scene: plain(scene, 2 * GROUP, PROMPTS)),
    "drop": ("n = 8, drop", [], drop),
    "refill": ("n = 8, refill", [], refill),
    "est": ("Est", ["method=ada_est"], est),
    "seq_pos": ("Seq-pos", ["method=ada_seq_pos"], seq),
    "seq_balance": ("Seq-balance", ["method=ada_seq_balance"], seq),
}

FULL_BATCH = {"plain_16": 2 * PROMPTS * GROUP}
"""Rows of a full batch, by which the recipe divides the loss, where they are not `PROMPTS * GROUP`."""


def positives(results: list[EvalResult]) -> list[bool]:
    """Which are correct and at least as fast as the reference."""
    return [bool(result.rewarded and (result.speedup or 0.0) >= 1.0) for result in results]


def flat_groups(rewards: torch.Tensor, groups: list[str]) -> set[str]:
    """Groups whose rewards agree."""
    own: dict[str, list[list[float]]] = {group: [] for group in groups}
    for reward, group in zip(rewards.tolist(), groups, strict=True):
        own[group].append([reward])
    return {group for group, earned in own.items() if has_zero_variance(earned, FLAT)}


def run(arm: str, seed: int, folder: Path, prompts: list[Prompt], judges: CachedPool) -> list[dict[str, Any]]:
    """Train once; a row per step and one per evaluation."""
    tokenizer = load_prompts(folder)[0]
    recipe, make = composed(ARMS[arm][1]), ARMS[arm][2]
    options = AdaOptions.from_node(recipe.algorithm.get("ada"))
    run_state.begin(options)
    learner = Learner(load_model(folder), recipe)
    order = list(prompts)
    random.Random(seed).shuffle(order)
    counts = Counts(options.decay, PRIOR, PRIOR)
    scene = Scene(
        learner.model, judges, tokenizer.eos_token_id, order, torch.Generator().manual_seed(seed), random.Random(seed),
        options, counts,
    )  # fmt: skip
    rows, step, marks = [], 0, [CALLS * part // EVALUATIONS for part in range(1, EVALUATIONS + 1)]
    while scene.calls < CALLS:
        step, before = step + 1, scene.calls
        rollouts, rewards, groups = make(scene)
        start = time.process_time()
        facts = learner.update(
            rollouts, learner.advantages(rollouts, rewards, groups), FULL_BATCH.get(arm, PROMPTS * GROUP)
        )
        flat = len(flat_groups(rewards, groups)) / len(set(groups))
        row = {"arm": arm, "seed": seed, "step": step, "calls": scene.calls, "draws": scene.calls - before}
        row |= {"rows": len(groups), "groups": len(set(groups)), "flat": flat, "reward": float(rewards.mean())}
        rows.append(row | {"update_s": time.process_time() - start, "grad_norm": facts["grad_norm"]})
        if marks and scene.calls >= marks[0]:
            marks = [mark for mark in marks if mark > scene.calls]
            rows.append({"arm": arm, "seed": seed, "calls": scene.calls} | evaluate(scene, prompts, seed))
    return [{key: round(value, 5) if isinstance(value, float) else value for key, value in row.items()} for row in rows]


def evaluate(scene: Scene, prompts: list[Prompt], seed: int, answers: int = 2) -> dict[str, float]:
    """Figures of the present weights over all tasks; not counted as calls."""
    generator, results = torch.Generator().manual_seed(1000 + seed), []
    asked = repeated(prompts, answers)[0]
    for start in range(0, len(asked), 64):
        results += scene.judges.verdicts(sample(scene.model, asked[start : start + 64], scene.end, generator))
    return {"eval_pr": float(rewards_of(results).mean()), "eval_positive": sum(positives(results)) / len(results)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quickstart", type=Path, default=Path("outputs/quickstart"))
    parser.add_argument("--out", type=Path, default=Path("data/methods"))
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--memory", type=Path, default=Path("outputs/methods/verdicts.jsonl"))
    options = parser.parse_args()
    rates = json.loads((options.out / "pass_rates.json").read_text(encoding="utf-8"))["tasks"]
    tokenizer, prompts = load_prompts(options.quickstart)
    hard = [prompt for prompt in prompts if RATES[0] <= rates[prompt.task.task_id]["positive"] <= RATES[1]]
    path, judges = options.out / "ada.jsonl", CachedPool(tokenizer, options.memory, judges=1)
    done = (
        {(row["arm"], row["seed"]) for row in map(json.loads, path.read_text().splitlines())} if path.is_file() else ()
    )
    for arm, seed in ((arm, seed) for seed in SEEDS for arm in options.arms if (arm, seed) not in done):
        start = time.monotonic()
        rows = run(arm, seed, options.quickstart, hard, judges)
        with path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        last = rows[-1]
        print(f"{arm} {seed}: {time.monotonic() - start:.0f} s, {len(hard)} tasks, {last}", flush=True)
    judges.close()


if __name__ == "__main__":
    main()
