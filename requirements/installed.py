# SPDX-License-Identifier: Apache-2.0
"""What is installed in a folder of packages, and whether its files are whole."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path


def version(site: Path, name: str) -> str:
    """Version of an installed distribution, local part included; empty where there is none."""
    return next((path.name[: -len(".dist-info")].split("-")[1] for path in site.glob(f"{name}-*.dist-info")), "")


def names(site: Path) -> list[str]:
    """Name and version of every distribution, as its metadata's folder is called."""
    return sorted(path.name for path in site.glob("*.dist-info"))


def remove_damaged(site: Path) -> list[str]:
    """Names of distributions with missing or cut files; each loses its metadata, and so counts as not installed."""
    damaged = [info for info in sorted(site.glob("*.dist-info")) if not _is_whole(info)]
    for info in damaged:
        shutil.rmtree(info)
    return [re.sub(r"[-_.]+", "-", info.name.split("-")[0]).lower() for info in damaged]


def _is_whole(info: Path) -> bool:
    """Whether every file that the distribution's RECORD names is there with its size."""
    try:
        with (info / "RECORD").open(newline="") as record:
            return all(_has_size(info.parent / path, size) for path, _, size in csv.reader(record))
    except (OSError, ValueError):
        return False


def _has_size(path: Path, size: str) -> bool:
    return path.stat().st_size == int(size) if size else path.exists()
