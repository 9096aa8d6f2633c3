# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel data quickstart`: everything the CPU recipe trains on, from one seed.

    OUT/train.parquet val.parquet   tasks as verl rows, distinct from each other and from the corpus
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
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import tokenizers
import torch
import transformers
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from verl_kernel.data.rows import make_row, write_rows
from verl_kernel.quickstart.corpus import Message
from verl_kernel.quickstart.options import Quickstart, sha256
from verl_kernel.quickstart.sft_rows import group_by_length, write_talks
from verl_kernel.quickstart.tokenizer import train_tokenizer
from verl_kernel.quickstart.warm_start import build_model, train
from verl_kernel.quickstart.worlds import TaskProgram, World
from verl_kernel.world.tokenizer import encode_conversation

DATA_SOURCE = "kernel_quickstart"
logger = logging.getLogger(__name__)
Progress = Callable[[int, int, float], None]
"""Receives step, steps and the step's loss."""


def build(out: Path, options: Quickstart, progress: Progress) -> dict[str, Any]:
    """Make the quickstart in `out` and return its manifest."""
    started = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    (out / "manifest.json").unlink(missing_ok=True)
    rng, world = Random(options.seed), options.make_world()
    taken: set[str] = set()
    for split, count in (("train", options.train_tasks), ("val", options.val_tasks)):
        write_rows(_rows(world, world.tasks(count, rng, taken), split), out / f"{split}.parquet")
    corpus = world.talks(options.conversations, rng, taken)
    texts = (message["content"] for talk in corpus for message in talk)
    tokenizer = train_tokenizer(texts, options.vocabulary, world.numbers)
    model, losses = _cold_start(out, corpus, tokenizer, options, progress)
    model.save_pretrained(out / "model")
    tokenizer.save_pretrained(out / "model")
    shutil.rmtree(out / "sft")
    manifest = {
        "fingerprint": options.fingerprint,
        "options": {**asdict(options), "mix": options.mix and str(options.mix)},
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


def _rows(world: World, programs: Sequence[TaskProgram], split: str) -> list[dict[str, Any]]:
    return [
        make_row(
            world.messages(program),
            program.reference,
            data_source=DATA_SOURCE,
            task_id=program.task_id,
            split=split,
            index=index,
            level=program.level,
        )
        for index, program in enumerate(programs)
    ]


def _files(out: Path) -> list[Path]:
    return sorted([*(out / f"{name}.parquet" for name in ("train", "val", "corpus")), *(out / "model").iterdir()])
