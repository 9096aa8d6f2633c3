# SPDX-License-Identifier: Apache-2.0
"""The quickstart without a cluster: one process samples answers and asks a pool of judges.

The model, the tasks, the gym and the reward are those of `cpu_quickstart`; Ray, vLLM and the trainer are left out, so
that one step takes seconds and the age of the weights is set exactly. One turn per trajectory.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from verl_kernel.data.rows import task_from_row
from verl_kernel.env import EvalResult, GymOptions, LocalPool, Task
from verl_kernel.reward.extract import extract_code, no_program
from verl_kernel.reward.profiling import profiling_reward

MAX_TOKENS = 200
"""Of an answer: `cpu_quickstart`'s response length over its two turns."""


@dataclass(frozen=True)
class Prompt:
    """A task and the tokens that ask for it."""

    task: Task
    ids: tuple[int, ...]


@dataclass
class Rollouts:
    """B sampled answers, padded to T tokens."""

    prompts: list[Prompt]
    tokens: torch.Tensor
    """(B, T) int64."""
    mask: torch.Tensor
    """(B, T) bool."""
    log_probs: torch.Tensor
    """(B, T) float32, by the weights that sampled them."""
    entropy: float
    """Of the sampling distribution, nats per token."""


def selected(rollouts: Rollouts, rows: Sequence[int]) -> Rollouts:
    """Some of the rows."""
    picked = list(rows)
    return Rollouts(
        [rollouts.prompts[row] for row in picked], rollouts.tokens[picked], rollouts.mask[picked],
        rollouts.log_probs[picked], rollouts.entropy,
    )  # fmt: skip


def joined(parts: Sequence[Rollouts]) -> Rollouts:
    """All rows of several batches; the entropy is the first one's."""
    width = max(part.tokens.shape[1] for part in parts)

    def padded(name: str) -> torch.Tensor:
        tensors = [getattr(part, name) for part in parts]
        return torch.cat([torch.nn.functional.pad(tensor, (0, width - tensor.shape[1])) for tensor in tensors])

    prompts = [prompt for part in parts for prompt in part.prompts]
    return Rollouts(prompts, padded("tokens"), padded("mask"), padded("log_probs"), parts[0].entropy)


def load_prompts(folder: Path, split: str = "train") -> tuple[Any, list[Prompt]]:
    """The tokenizer of a quickstart folder and the prompts of one of its splits."""
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    prompts = []
    for row in pd.read_parquet(folder / f"{split}.parquet").to_dict("records"):
        messages = [dict(message) for message in row["prompt"]]
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
        prompts.append(Prompt(task_from_row(row), tuple(ids)))
    return tokenizer, prompts


def load_model(folder: Path) -> Any:
    """The warm-started model, float32."""
    return AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)


@torch.no_grad()
def sample(model: Any, prompts: Sequence[Prompt], end: int, generator: torch.Generator) -> Rollouts:
    """One answer to every prompt, at temperature 1."""
    width = max(len(prompt.ids) for prompt in prompts)
    ids = torch.tensor([[0] * (width - len(p.ids)) + list(p.ids) for p in prompts])
    seen = torch.tensor([[0] * (width - len(p.ids)) + [1] * len(p.ids) for p in prompts])
    alive, cache, mask_rows, entropies = torch.ones(len(ids), dtype=torch.bool), DynamicCache(), [], []
    tokens, log_probs = [], []
    place = (seen.cumsum(1) - 1).clamp_min(0)
    for _ in range(MAX_TOKENS):
        logits = model(
            ids, attention_mask=seen, position_ids=place, past_key_values=cache, use_cache=True, logits_to_keep=1
        ).logits[:, -1]
        logs = logits.log_softmax(-1)
        token = torch.multinomial(logs.exp(), 1, generator=generator)
        tokens.append(token[:, 0])
        log_probs.append(logs.gather(1, token)[:, 0])
        entropies.append(-(logs.exp() * logs).sum(-1))
        mask_rows.append(alive)
        alive = alive & (token[:, 0] != end)
        if not alive.any():
            break
        ids, place = token, place[:, -1:] + 1
        seen = torch.cat([seen, seen.new_ones(len(seen), 1)], dim=1)
    mask = torch.stack(mask_rows, 1)
    entropy = float((torch.stack(entropies, 1) * mask).sum() / mask.sum())
    return Rollouts(list(prompts), torch.stack(tokens, 1), mask, torch.stack(log_probs, 1) * mask, entropy)


def token_log_probs(model: Any, rollouts: Rollouts, rows: Sequence[int]) -> torch.Tensor:
    """(len(rows), T) log-probabilities of the sampled tokens by the model's present weights."""
    texts = [list(rollouts.prompts[row].ids) + rollouts.tokens[row][rollouts.mask[row]].tolist() for row in rows]
    width = max(map(len, texts))
    ids = torch.tensor([text + [0] * (width - len(text)) for text in texts])
    seen = torch.tensor([[1] * len(text) + [0] * (width - len(text)) for text in texts])
    logits = model(ids, attention_mask=seen).logits
    out = rollouts.log_probs.new_zeros(len(texts), rollouts.tokens.shape[1])
    for at, row in enumerate(rows):
        start, length = len(rollouts.prompts[row].ids), int(rollouts.mask[row].sum())
        logs = logits[at, start - 1 : start + length - 1].log_softmax(-1)
        own = logs.gather(1, rollouts.tokens[row, :length, None])[:, 0]
        out[at] = torch.nn.functional.pad(own, (0, out.shape[1] - length))
    return out


class CachedPool:
    """A pool of judges that remembers its verdicts, in a file as well: simulated times and seeds are fixed."""

    def __init__(self, tokenizer: Any, memory: Path, judges: int) -> None:
        self._tokenizer, self._memory = tokenizer, memory
        self._pool = LocalPool(GymOptions(device="cpu", correctness_trials=2, num_judges=judges), 0)
        self._known: dict[str, EvalResult] = {}
        if memory.is_file():
            for line in memory.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                self._known[entry["key"]] = EvalResult.model_validate(entry["result"])
        self.judged = 0

    def verdicts(self, rollouts: Rollouts) -> list[EvalResult]:
        """The verdict on every answer."""
        texts = [
            self._tokenizer.decode(tokens[mask], skip_special_tokens=True)
            for tokens, mask in zip(rollouts.tokens, rollouts.mask, strict=True)
        ]
        codes = [
            extract_code(text, prompt.task.candidate_class)
            for text, prompt in zip(texts, rollouts.prompts, strict=True)
        ]
        keys = [f"{prompt.task.task_id}\n{code}" for prompt, code in zip(rollouts.prompts, codes, strict=True)]
        todo = {
            key: (prompt.task, code, "")
            for key, prompt, code in zip(keys, rollouts.prompts, codes, strict=True)
            if code is not None and key not in self._known
        }
        self._judge(todo)
        return [
            no_program(prompt.task) if code is None else self._known[key]
            for key, prompt, code in zip(keys, rollouts.prompts, codes, strict=True)
        ]

    def _judge(self, todo: dict[str, tuple[Task, str, str]]) -> None:
        results = self._pool.evaluate_many(list(todo.values())) if todo else []
        self.judged += len(results)
        self._memory.parent.mkdir(parents=True, exist_ok=True)
        with self._memory.open("a", encoding="utf-8") as file:
            for key, result in zip(todo, results, strict=True):
                self._known[key] = result
                file.write(json.dumps({"key": key, "result": json.loads(result.model_dump_json())}) + "\n")

    def close(self) -> None:
        """End the judges."""
        self._pool.close()


def rewards_of(results: Sequence[EvalResult]) -> torch.Tensor:
    """(B,) rewards, as `cpu_quickstart` pays them."""
    return torch.tensor([profiling_reward(result) for result in results])
