# SPDX-License-Identifier: Apache-2.0
"""What the quickstart is made with, and whether a folder already holds it; imports neither torch nor transformers."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from verl_kernel.errors import ConfigError
from verl_kernel.generated_tasks.difficulty import TABLE, Difficulty, read_difficulty
from verl_kernel.generated_tasks.kinds import Split

_PACKAGE = Path(__file__).parents[1]
RECIPE = _PACKAGE / "config" / "cpu_quickstart_sft.yaml"
_SOURCES = (
    *(RECIPE, _PACKAGE / "data" / "rows.py", _PACKAGE / "data" / "families.py", TABLE.with_name("tools.yaml")),
    *(_PACKAGE / "rollout" / f"{name}.py" for name in ("feedback", "tool_replies")),
    *(path for folder in (Path(__file__).parent, TABLE.parent) for path in folder.rglob("*.py")),
)
_VALIDATED: dict[Split, int] = {"same": 1, "new_sizes": 1, "new_chain": 4, "new_family": 2}
"""Tasks of each split of the validation, in `val_tasks`: most where the claims are."""
_LEAST = {"layers": 2, "width": 16, "heads": 2, "kv_heads": 1, "head_dim": 16}
"""Smallest sizes of a model that `lookup` can set up."""


@dataclass(frozen=True)
class WarmStart:
    """Size of the model and of a batch; steps follow from the corpus, the rest is in the recipe.

    Raises:
        ConfigError: a size is too small; the least sizes of the model are those that a lookup takes.
    """

    layers: int = 3
    width: int = 128
    heads: int = 4
    kv_heads: int = 2
    """Keys and values, shared by the heads: attention on a CPU takes time for each of them, not for each head."""
    head_dim: int = 32
    batch_size: int = 3
    threads: int = 2

    def __post_init__(self) -> None:
        for key, value in vars(self).items():
            if value < (minimum := _LEAST.get(key, 1)):
                raise ConfigError(f"warm_start.{key} is {value}; it must be at least {minimum}")
        if self.heads % self.kv_heads:
            raise ConfigError(f"warm_start.heads is {self.heads}; it must be a multiple of kv_heads = {self.kv_heads}")


@dataclass(frozen=True)
class Quickstart:
    """World and sizes of the quickstart.

    Raises:
        ConfigError: a size is below 1, the conversations do not fill a batch, or the table of difficulties is bad.
    """

    seed: int = 0
    world: str = "easy"
    """Row of the table of difficulties."""
    difficulty: Path | None = None
    """File with a table of difficulties; None for the package's."""
    train_tasks: int = 256
    val_tasks: int = 16
    """Tasks of the splits `same` and `new_sizes`; the others have more (`validation`)."""
    conversations: int = 4400
    vocabulary: int = 640
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
        self.row()

    def row(self) -> Difficulty:
        """Return the row of the table of difficulties."""
        return read_difficulty(self.world, self.difficulty or TABLE)

    @property
    def validation(self) -> dict[Split, int]:
        """Tasks of the validation by split."""
        return {split: times * self.val_tasks for split, times in _VALIDATED.items()}

    @property
    def fingerprint(self) -> str:
        """SHA-256 of these options and of the source files that make the quickstart from them."""
        digest = hashlib.sha256(json.dumps({**asdict(self), "difficulty": None}, sort_keys=True).encode())
        for source in (*sorted(_SOURCES), self.difficulty or TABLE):
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


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
