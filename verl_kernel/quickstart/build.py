# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel data quickstart`: everything the CPU recipe trains on, from one seed.

    OUT/train.parquet               tasks as verl rows
    OUT/val.parquet                 tasks at four distances from training, which verl reports by data source
    OUT/corpus.parquet              conversations for the cold start, column `messages`
    OUT/model/                      tokenizer and warm-started model, as `from_pretrained` reads them
    OUT/sft.log                     output of verl's SFT trainer
    OUT/manifest.json               seed, versions, counts, losses, seconds, SHA-256 of every file

A directory is not rebuilt if its manifest fits seed and program and its files still have their hashes.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import tokenizers
import torch
import transformers
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from verl_kernel.data.rows import write_rows
from verl_kernel.generated_tasks.conversations import TOOLS_FILE, Message
from verl_kernel.generated_tasks.tokenizer import encode_conversation, train_tokenizer
from verl_kernel.quickstart.drawing import Drawn, draw
from verl_kernel.quickstart.options import Quickstart, sha256
from verl_kernel.quickstart.sft_rows import group_by_length, write_talks
from verl_kernel.quickstart.warm_start import build_model, train

logger = logging.getLogger(__name__)
Progress = Callable[[int, int, float], None]
"""Receives step, steps and the step's loss."""


def build(out: Path, options: Quickstart, progress: Progress) -> dict[str, Any]:
    """Make the quickstart in `out` and return its manifest."""
    started = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    (out / "manifest.json").unlink(missing_ok=True)
    contents = draw(options)
    write_tasks(contents, out)
    tokenizer = train_tokenizer((message["content"] for talk in contents.talks for message in talk), options.vocabulary)
    model, losses = _cold_start(out, contents.talks, tokenizer, options, progress)
    model.save_pretrained(out / "model")
    tokenizer.save_pretrained(out / "model")
    shutil.rmtree(out / "sft")
    manifest = {
        "fingerprint": options.fingerprint,
        "options": {**asdict(options), "difficulty": options.difficulty and str(options.difficulty)},
        "parameters": model.num_parameters(),
        "vocabulary": len(tokenizer),
        "steps": len(losses),
        "loss": {"first": losses[0], "last": sum(losses[-20:]) / len(losses[-20:])},
        "seconds": round(time.monotonic() - started, 1),
        "versions": {module.__name__: module.__version__ for module in (torch, transformers, tokenizers)},
        "files": {str(path.relative_to(out)): sha256(path) for path in _files(out)},
    }
    (out / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    logger.info("quickstart in %s took %.0f s", out, manifest["seconds"])
    return manifest


def write_tasks(contents: Drawn, out: Path) -> None:
    """Write the tasks of training and of the validation."""
    write_rows(contents.world.rows(contents.trained, "train"), out / "train.parquet")
    validated = [row for split, tasks in contents.validated.items() for row in contents.world.rows(tasks, split)]
    write_rows(validated, out / "val.parquet")
    if contents.world.difficulty.tools:
        shutil.copyfile(TOOLS_FILE, out / TOOLS_FILE.name)


def _cold_start(
    out: Path, corpus: list[list[Message]], tokenizer: PreTrainedTokenizerFast, options: Quickstart, progress: Progress
) -> tuple[Qwen3ForCausalLM, list[float]]:
    """Write corpus and initial model and train it; return it with the loss of every step."""
    shutil.rmtree(out / "sft", ignore_errors=True)
    build_model(options.warm_start, tokenizer, options.seed).save_pretrained(out / "sft" / "model")
    tokenizer.save_pretrained(out / "sft" / "model")
    size = options.warm_start.batch_size
    lengths = [len(encode_conversation(tokenizer, talk)[0]) for talk in corpus]
    order = group_by_length(lengths, size, Random(options.seed))
    write_talks([corpus[row] for row in order], out / "corpus.parquet")
    return train(out, options.warm_start, lambda step, loss: progress(step, len(order) // size, loss))


def _files(out: Path) -> list[Path]:
    named = [*(out / f"{name}.parquet" for name in ("train", "val", "corpus")), out / TOOLS_FILE.name]
    return sorted([*(path for path in named if path.exists()), *(out / "model").iterdir()])
