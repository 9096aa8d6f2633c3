# SPDX-License-Identifier: Apache-2.0
"""What the quickstart is made with, and whether a folder already holds it; imports neither torch nor transformers."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from verl_kernel.errors import ConfigError
from verl_kernel.quickstart.hard.mix import DEFAULT as MIX
from verl_kernel.quickstart.worlds import Name, World, make_world

_PACKAGE = Path(__file__).parents[1]
RECIPE = _PACKAGE / "config" / "cpu_quickstart_sft.yaml"
_SOURCES = (
    *(RECIPE, _PACKAGE / "data" / "rows.py", _PACKAGE / "rollout" / "feedback.py", _PACKAGE / "world" / "tokenizer.py"),
    *Path(__file__).parent.rglob("*.py"),
)


@dataclass(frozen=True)
class WarmStart:
    """Size of the model and of a batch; steps follow from the corpus, the rest is in the recipe.

    Raises:
        ConfigError: a size is below 1.
    """

    layers: int = 4
    width: int = 128
    heads: int = 4
    head_dim: int = 32
    batch_size: int = 6
    threads: int = 2

    def __post_init__(self) -> None:
        for key, value in vars(self).items():
            if value < 1:
                raise ConfigError(f"warm_start.{key} is {value}; it must be at least 1")


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


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
