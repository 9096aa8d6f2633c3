# SPDX-License-Identifier: Apache-2.0
"""How often the quickstart's model solves each task at the start: tasks to show Reinforce-Ada on.

    python benchmarks/methods/pass_rates.py --quickstart outputs/quickstart

Positive is what the method's default calls so: correct and at least as fast as the reference.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from quickstart_play import CachedPool, load_model, load_prompts, sample

ANSWERS = 32
"""To every task."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quickstart", type=Path, default=Path("outputs/quickstart"))
    parser.add_argument("--out", type=Path, default=Path("data/methods/pass_rates.json"))
    parser.add_argument("--memory", type=Path, default=Path("outputs/methods/verdicts.jsonl"))
    options = parser.parse_args()
    tokenizer, prompts = load_prompts(options.quickstart)
    model, generator = load_model(options.quickstart), torch.Generator().manual_seed(7)
    judges = CachedPool(tokenizer, options.memory, judges=1)
    rates = {}
    for start in range(0, len(prompts), 2):
        pair = prompts[start : start + 2]
        rows = [prompt for prompt in pair for _ in range(ANSWERS)]
        results = judges.verdicts(sample(model, rows, tokenizer.eos_token_id, generator))
        for number, prompt in enumerate(pair):
            own = results[number * ANSWERS : (number + 1) * ANSWERS]
            positive = [result.rewarded and (result.speedup or 0.0) >= 1.0 for result in own]
            rates[prompt.task.task_id] = {
                "correct": sum(result.rewarded for result in own) / ANSWERS, "positive": sum(positive) / ANSWERS
            }  # fmt: skip
    judges.close()
    options.out.write_text(json.dumps({"answers": ANSWERS, "tasks": rates}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
