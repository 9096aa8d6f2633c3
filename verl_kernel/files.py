# SPDX-License-Identifier: Apache-2.0
"""Files that other processes may read during a write: replaced as a whole, or extended line by line."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path, *, is_shared: bool = False) -> Iterator[Path]:
    """Yield a file next to `path` to write into, which replaces `path` once the block has ended without an error.

    A reader finds the old file or the whole new one, and the old one stays if the disk is full.

    Args:
        path: the file that is wanted, in a folder that exists.
        is_shared: whether several processes may write it at once: then each has a separate file, which only its user
            may read.

    Raises:
        OSError: the new file cannot be made, or cannot replace `path`.
    """
    part = path.with_name(f"{path.name}.part")
    if is_shared:
        descriptor, name = tempfile.mkstemp(dir=path.parent)
        os.close(descriptor)
        part = Path(name)
    try:
        yield part
        part.replace(path)
    finally:
        # A failure to remove the file must not hide the error of the block.
        with suppress(OSError):
            part.unlink()


def read_objects(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file with one object per line; skip other lines, which a killed writer may leave.

    Raises:
        OSError: the file cannot be read.
    """
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(json.JSONDecodeError):
            if isinstance(record := json.loads(line), dict):
                yield record
