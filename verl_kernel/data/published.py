# SPDX-License-Identifier: Apache-2.0
"""Reads published files (parquet or JSON lines), row by row, and writes the converted rows.

A row that cannot be converted is counted and listed with its reason, in a file next to the output.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_kernel.data.files import reading, writing
from verl_kernel.errors import DataError

Record = Mapping[str, Any]
Convert = Callable[[Record, int], dict[str, Any]]
"""Converts a published row, given with its number, to this package's schema; raises DataError."""
_BATCH = 512
"""Rows that are in memory at a time."""
_ENDINGS = (".parquet", ".jsonl")


@dataclass
class Written:
    """The result of converting a file's rows."""

    rows: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Number of rows by the reason for which they were left out."""
    listed: Path | None = None
    """File that lists the rows left out, one JSON object per line; None if there are none."""


def files_of(path: Path, advice: str) -> list[Path]:
    """Return the data files at a path, which may be a folder.

    Args:
        path: as the user gave it.
        advice: what to fetch and where to put it, in a sentence for a user who does not have it.

    Raises:
        DataError: there are none.
    """
    if path.is_file():
        if path.suffix not in _ENDINGS:
            raise DataError(f"{path} is neither a .parquet nor a .jsonl file: {advice}")
        return [path]
    if not path.exists():
        raise DataError(f"{path} does not exist: {advice}")
    files = sorted(file for ending in _ENDINGS for file in path.rglob(f"*{ending}"))
    if not files:
        raise DataError(f"{path} holds neither .parquet nor .jsonl files: {advice}")
    return files


def records_of(files: list[Path]) -> Iterator[Record]:
    """Yield the rows of files, in order.

    Raises:
        DataError: a file cannot be read; the message names it.
    """
    for file in files:
        yield from _parquet(file) if file.suffix == ".parquet" else _lines(file)


def _parquet(file: Path) -> Iterator[Record]:
    with reading(file), pq.ParquetFile(file) as parquet:
        for batch in parquet.iter_batches(batch_size=_BATCH):
            yield from batch.to_pylist()


def _lines(file: Path) -> Iterator[Record]:
    number = 0
    try:
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                number += 1
                if line.strip():
                    yield _record(line)
    except OSError as exc:
        raise DataError(f"{file} cannot be read ({exc.strerror or exc}): see to its permissions") from exc
    except ValueError as exc:
        what = "it is no UTF-8 text" if isinstance(exc, UnicodeDecodeError) else f"line {number} is no JSON"
        raise DataError(f"{file} is cut off or damaged ({what}): fetch it anew") from exc


def _record(line: str) -> Record:
    record = json.loads(line)
    if "\\ud" in line.lower():  # halves of surrogate pairs, which parquet cannot hold
        record = json.loads(json.dumps(record, ensure_ascii=False).encode("utf-8", "replace"))
    return record if isinstance(record, Mapping) else {}


def convert(records: Iterator[Record], make: Convert, schema: pa.Schema, out: Path) -> Written:
    """Convert rows by `make` and write them; the file appears only when it is complete.

    Raises:
        DataError: no row is left; and as `files.writing`.
    """
    written, listed = Written(), out.with_suffix(".refused.jsonl")
    refused = out.with_suffix(".refused.part")
    rows = _converted(records, make, written, refused)
    try:
        with writing(out) as part:
            with pq.ParquetWriter(part, schema) as writer:
                while batch := list(islice(rows, _BATCH)):
                    writer.write_table(pa.Table.from_pylist(batch, schema))
            listed.unlink(missing_ok=True)
            if written.refused:
                written.listed = refused.replace(listed)
            if not written.rows:
                raise DataError(f"no row is left for {out}: {summary(written)}")
    finally:
        with suppress(OSError):
            refused.unlink()
    return written


def _converted(records: Iterator[Record], make: Convert, written: Written, refused: Path) -> Iterator[dict[str, Any]]:
    id_counts: Counter[str] = Counter()
    with ExitStack() as stack:
        file: IO[str] | None = None
        for number, record in enumerate(records):
            try:
                row = make(record, number)
            except DataError as exc:
                file = file or stack.enter_context(refused.open("w", encoding="utf-8"))
                reason = str(exc).partition(":")[0]
                written.refused[reason] += 1
                file.write(json.dumps({"row": number, "reason": reason, "sentence": str(exc)}) + "\n")
                continue
            _set_index_and_id(row, written.rows, id_counts)
            written.rows += 1
            yield row


def _set_index_and_id(row: dict[str, Any], index: int, id_counts: Counter[str]) -> None:
    """Give a row its index in the file, and an id that no earlier row has."""
    info = row.get("extra_info")
    if info is None:
        return
    name = unique = info["task_id"]
    while unique in id_counts:
        id_counts[name] += 1
        unique = f"{name}-{id_counts[name]}"
    id_counts[unique] = 1
    info["task_id"], info["index"] = unique, index


def summary(written: Written) -> str:
    """Return how many rows were kept, and how many left out for which reason, in a sentence."""
    if not written.refused:
        return f"{written.rows} rows, none left out"
    reasons = "; ".join(f"{count} because {reason}" for reason, count in written.refused.most_common())
    where = "" if written.listed is None else f" (listed in {written.listed})"
    return f"{written.rows} rows, {written.refused.total()} left out: {reasons}{where}"
