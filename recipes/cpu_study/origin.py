# SPDX-License-Identifier: Apache-2.0
"""The origin of a study's rows: code, date, data and composed configuration of the run that made them."""

from __future__ import annotations

import hashlib
import importlib.metadata
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from verl_kernel.errors import DataError

KEYS = ("commit", "date", "data", "configuration")
"""Keys of a row's origin; rows made before these keys existed have none of them."""
_ROOT = Path(__file__).parents[2]
_FILES = ("data.train_files", "data.val_files")
_DIGITS = 16


def code_origin(root: Path = _ROOT) -> dict[str, str]:
    """Return the commit of the checkout, with `-dirty` where files differ from it, and the date in UTC.

    Without a checkout, or if git cannot read it, the commit is the package's version.
    """
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"commit": _commit(root) or f"version {importlib.metadata.version('verl-kernel')}", "date": date}


def run_origin(folder: Path) -> dict[str, str]:
    """Return hashes of the configuration that Hydra left in a run's folder, and of the data files that it names.

    The folder's own path is removed from the configuration first. Without a configuration, the result is empty.

    Returns:
        `configuration` and `data`: the first 16 digits of SHA-256.

    Raises:
        DataError: the configuration or a file that it names cannot be read.
    """
    path = folder / ".hydra" / "config.yaml"
    if not path.is_file():
        return {}
    try:
        text = path.read_text(encoding="utf-8")
        config = OmegaConf.create(text)
        data = [file for key in _FILES for file in _listed(OmegaConf.select(config, key))]
        return {
            "data": _digest(Path(file).read_bytes() for file in data),
            "configuration": _digest([text.replace(str(folder.resolve()), "").encode()]),
        }
    except (OSError, ValueError, OmegaConfBaseException, YAMLError) as exc:
        raise DataError(f"{path}: configuration and data of the run cannot be read ({exc})") from exc


def of_record(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the origin that a run's record states."""
    return {key: record[key] for key in KEYS if key in record}


def origins(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a paragraph that names the commits and the data of rows; empty if no row has any."""
    found = {key: sorted({row[key] for row in rows if key in row}) for key in ("commit", "data")}
    named = [f"{key} {', '.join(values)}" for key, values in found.items() if values]
    return f"Rows made by: {'; '.join(named)}.\n" if named else ""


def _commit(root: Path) -> str | None:
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _listed(files: Any) -> list[str]:
    if files is None:
        return []
    return [files] if isinstance(files, str) else [str(file) for file in files]


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:_DIGITS]
