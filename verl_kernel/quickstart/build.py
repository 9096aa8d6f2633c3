# SPDX-License-Identifier: Apache-2.0
"""`verl-kernel data quickstart`: everything the CPU recipe trains on, from one seed.

    OUT/train.parquet val.parquet   tasks as verl rows, distinct from each other and from the corpus
    OUT/corpus.parquet              conversations for the cold start, column `messages`
    OUT/model/                      tokenizer and warm-started model, as `from_pretrained` reads them
    OUT/sft.log                     what verl's SFT trainer said
    OUT/manifest.json               seed, versions, counts, losses, seconds, SHA-256 of every file

A directory whose manifest fits seed and program and whose files still have their hashes is left alone.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import tokenizers
import torch
import transformers
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from verl_kernel.data.rows import make_row, write_rows
from verl_kernel.errors import ConfigError
from verl_kernel.quickstart.corpus import Message
from verl_kernel.quickstart.hard.mix import DEFAULT as MIX
from verl_kernel.quickstart.sft_rows import group_by_length, write_talks
from verl_kernel.quickstart.tokenizer import encode_conversation, train_tokenizer
from verl_kernel.quickstart.warm_start import RECIPE, WarmStart, build_model, train
from verl_kernel.quickstart.worlds import Name, TaskProgram, World, make_world

DATA_SOURCE = "kernel_quickstart"
logger = logging.getLogger(__name__)
Progress = Callable[[int, int, float], None]
"""Receives step, steps and the step's loss."""
_PACKAGE = Path(__file__).parents[1]
_SOURCES = (
    *(RECIPE, _PACKAGE / "data" / "rows.py", _PACKAGE / "rollout" / "feedback.py"),
    *Path(__file__).parent.rglob("*.py"),
)


@dataclass(frozen=True)
class Quickstart:
    """World and sizes of the quickstart.

    Raises:
        ConfigError: a size is below 1, the conversations do not fill a batch, or the world's table is bad.
    """

    seed: int = 0
    world: Name = "easy"
    mix: Path | None = None
    """File with the table of answers of the hard world's cold start; None for the recipe's."""
    train_tasks: int = 256
    val_tasks: int = 32
    conversations: int = 6000
    vocabulary: int = 1024
    warm_start: WarmStart = field(default_factory=WarmStart)

    def __post_init__(self) -> None:
        for key in ("train_tasks", "val_tasks", "conversations"):
            if getattr(self, key) < 1:
                raise ConfigError(f"quickstart.{key} is {getattr(self, key)}; it must be at least 1")
        if self.conversations < self.warm_start.batch_size:
            raise ConfigError(
                f"quickstart.conversations is {self.conversations}, less than a batch of the warm start: "
                f"make it at least {self.warm_start.batch_size}"
            )
        self.make_world()

    def make_world(self) -> World:
        """The world that these options name."""
        return make_world(self.world, self.mix)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of these options and of the files that turn them into others."""
        digest = hashlib.sha256(json.dumps({**asdict(self), "mix": None}, sort_keys=True).encode())
        for source in (*sorted(_SOURCES), self.mix or MIX):
            digest.update(source.read_bytes())
        return digest.hexdigest()


def is_complete(out: Path, options: Quickstart) -> bool:
    """Whether `out` already holds what `options` would make."""
    return fits_manifest(out, options.fingerprint)


def fits_manifest(folder: Path, fingerprint: str) -> bool:
    """Whether a folder's `manifest.json` has this fingerprint, and the files that it names have their hashes."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        if manifest["fingerprint"] != fingerprint:
            return False
        return all(sha256(folder / name) == digest for name, digest in manifest["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


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


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
