# SPDX-License-Identifier: Apache-2.0
"""A demonstration's figure and table, made of the rows that its runs left."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def publish(
    name: str,
    about: str,
    draw: Callable[[Sequence[dict[str, Any]], Path], None],
    table: Callable[[Sequence[dict[str, Any]]], str],
) -> None:
    """Read --out/<name>.jsonl, write <name>.svg and <name>.md beside it, and print the table."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("data/methods"))
    folder = parser.parse_args().out
    rows = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
    draw(rows, folder / f"{name}.svg")
    (folder / f"{name}.md").write_text(table(rows), encoding="utf-8")
    print(table(rows))
