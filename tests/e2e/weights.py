# SPDX-License-Identifier: Apache-2.0
"""Whose weights generated a sample: vLLM's log-probs against those of a model."""

import math
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM


def load(folder: Path) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def of_step(folder: Path, step: int) -> torch.nn.Module:
    return load(folder / "checkpoints" / f"global_step_{step}" / "actor" / "huggingface")


def drift(one: torch.nn.Module, other: torch.nn.Module) -> float:
    """Largest absolute difference between two models' weights."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max((first - second).abs().max().item() for first, second in pairs)


def mean_gap(model: torch.nn.Module, rows: list[dict]) -> float:
    """Mean absolute difference between vLLM's log-probs of generated tokens and the model's."""
    gaps = [gap for row in rows for gap in _gaps(model, row)]
    assert gaps
    assert all(math.isfinite(gap) for gap in gaps)
    return sum(gaps) / len(gaps)


def _gaps(model: torch.nn.Module, row: dict) -> list[float]:
    ids = torch.tensor([row["prompts"] + row["responses"]])
    with torch.no_grad():
        logprobs = model(ids).logits[0, :-1].log_softmax(-1)
    start = len(row["prompts"]) - 1
    own = logprobs[start:].gather(1, ids[0, start + 1 :, None]).squeeze(1)
    mask = torch.tensor(row["generated_mask"], dtype=torch.bool)
    return (own - torch.tensor(row["rollout_log_probs"]))[mask].abs().tolist()
