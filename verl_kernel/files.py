# SPDX-License-Identifier: Apache-2.0
"""Files that other processes read while one is written: replaced as a whole, or grown line by line."""

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
    """Yield a file beside `path` to write into, which takes the place of `path` once the block has ended well.

    A reader finds the old file or the whole new one, and the old one stays where the disk has no room for both.

    Args:
        path: the file that is wanted, in a folder that exists.
        is_shared: whether several processes may write it at once: each then has a file of its own, for its user only.

    Raises:
        OSError: the file beside it cannot be made, or cannot take the place.
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
        # The reason why the block failed is worth more than that of a file that cannot be removed.
        with suppress(OSError):
            part.unlink()


def read_objects(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file that has one a line; other lines, as a killed writer leaves them, are left out.

    Raises:
        OSError: the file cannot be read.
    """
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(json.JSONDecodeError):
            if isinstance(record := json.loads(line), dict):
                yield record
