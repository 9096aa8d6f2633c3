# SPDX-License-Identifier: Apache-2.0
"""The origin of a study's rows: code, date, data and composed configuration of the run that made them."""

from __future__ import annotations

import hashlib
import importlib.metadata
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from verl_kernel.bench.suites import parquet_suite
from verl_kernel.errors import DataError

KEYS = ("commit", "date", "data", "model", "configuration")
"""Keys of a row's origin; rows made before these keys existed have none of them."""
_ROOT = Path(__file__).parents[2]
_MODEL = "actor_rollout_ref.model.path"
_FILES = ("data.train_files", "data.val_files")
_DIGITS = 16


def code_origin(root: Path = _ROOT) -> dict[str, str]:
    """Return the commit of the checkout, with `-dirty` where files differ from it, and the date in UTC.

    Without a checkout, or if git cannot read it, the commit is the package's version.
    """
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"commit": _commit(root) or f"version {importlib.metadata.version('verl-kernel')}", "date": date}


def run_origin(folder: Path) -> dict[str, str]:
    """Return hashes of the configuration that Hydra left in a run's folder, and of the data and weights that it names.

    The folder's own path is removed from the configuration first. Without a configuration, the result is empty.

    Returns:
        `configuration`, `data` and, of a model in a folder, `model`: the first 16 digits of SHA-256.

    Raises:
        DataError: the configuration or a file that it names cannot be read.
    """
    with _configuration(folder) as text:
        if not text:
            return {}
        data = [file for key in _FILES for file in _listed(text, key)]
        weights = sorted(path for model in _listed(text, _MODEL) for path in model.glob("*.safetensors"))
        return {
            "data": _digest(file.read_bytes() for file in data),
            **({"model": _digest(file.read_bytes() for file in weights)} if weights else {}),
            "configuration": _digest([text.replace(str(folder.resolve()), "").encode()]),
        }


def splits(folder: Path) -> dict[str, str]:
    """Return the split of each task of the validation in a run's configuration; tasks without a split are left out.

    Raises:
        DataError: the configuration or a file that it names cannot be read.
    """
    with _configuration(folder) as text:
        files = _listed(text, _FILES[-1])
    return {item.task.task_id: item.family for file in files for item in parquet_suite(file).tasks if item.family}


def of_record(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the origin that a run's record states."""
    return {key: record[key] for key in KEYS if key in record}


def origins(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a paragraph that names the commits and the data of rows; empty if no row has any."""
    found = {key: sorted({row[key] for row in rows if key in row}) for key in ("commit", "data", "model")}
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


@contextmanager
def _configuration(folder: Path) -> Iterator[str]:
    """Give the text of a run's configuration, empty without one; what cannot be read in the body is a DataError."""
    path = folder / ".hydra" / "config.yaml"
    try:
        yield path.read_text(encoding="utf-8") if path.is_file() else ""
    except (OSError, ValueError, OmegaConfBaseException, YAMLError) as exc:
        raise DataError(f"{path}: configuration and data of the run cannot be read ({exc})") from exc


def _listed(configuration: str, key: str) -> list[Path]:
    """Return the files that a key of a configuration names."""
    files = OmegaConf.select(OmegaConf.create(configuration), key)
    return [Path(file) for file in ([files] if isinstance(files, str) else files or [])]


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:_DIGITS]
