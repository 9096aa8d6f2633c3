# SPDX-License-Identifier: Apache-2.0
"""The published data sets that can be read: where each is, and what makes rows or conversations of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from verl_kernel.data import drkernel, kernelbench_rows, kernelbook, kernelsmith, rows, talks
from verl_kernel.data.published import Convert, Record, Written, convert, files_of, records_of
from verl_kernel.errors import ConfigError


@dataclass(frozen=True)
class Source:
    """A published data set."""

    kind: Literal["rows", "talks"]
    repository: str
    """Its name on huggingface.co."""
    make: Convert
    file: str = ""
    """Name of its file; empty where its card names none."""
    revision: str = ""
    """The one to pin, all 40 characters (the hub takes no shorter one); empty where none is known to matter."""

    @property
    def wanted(self) -> str:
        """What to fetch and where to put it."""
        what = f"the file {self.file}" if self.file else "the parquet files"
        pinned = f" at revision {self.revision}" if self.revision else ""
        command = f"hf download {self.repository} --repo-type dataset --local-dir DIR"
        command += f" --revision {self.revision}" if self.revision else ""
        return (
            f"on a machine with a network, fetch {what} of the data set {self.repository}{pinned} from "
            f"huggingface.co (`{command}`), and name the file or the folder here"
        )

    @property
    def schema(self) -> pa.Schema:
        """Columns of what is made of it."""
        return rows.SCHEMA if self.kind == "rows" else talks.SCHEMA


SOURCES = {
    "kernelbench": Source("rows", kernelbench_rows.REPOSITORY, kernelbench_rows.task_row),
    "drkernel-rl": Source(
        "rows", "hkust-nlp/drkernel-rl-data", drkernel.rl_row, file="cuda_llm_rl_thinking_1025.parquet"
    ),
    "drkernel-validation": Source(
        "rows", "hkust-nlp/drkernel-validation-data", drkernel.validation_row, file="validation_data_thinking.parquet"
    ),
    "drkernel-coldstart": Source("talks", "hkust-nlp/drkernel-coldstart-8k", drkernel.coldstart_talk),
    # Later revisions have another licence.
    "kernelbook": Source(
        "rows", "GPUMODE/KernelBook", kernelbook.task_row, revision="1576375bc92745b490e1cdf2fce01eba76d9f847"
    ),
    "kernelsmith-rl": Source("rows", "CoopReason/Kernel-Smith-RL-2K", kernelsmith.rl_row),
    "kernelsmith-sft": Source("talks", "CoopReason/Kernel-Smith-SFT-71K", kernelsmith.sft_talk),
}
"""By the name that the command line takes."""


def names(kind: str) -> list[str]:
    """Of the sources of a kind."""
    return [name for name, source in SOURCES.items() if source.kind == kind]


def convert_source(name: str, kind: str, path: Path, out: Path, levels: Collection[int] = ()) -> Written:
    """Make rows, or conversations, of a published data set.

    Args:
        name: of the source.
        kind: `rows` or `talks`.
        path: its file, or a folder of its files.
        out: parquet file to write.
        levels: of KernelBench, those wanted; all where it is empty.

    Raises:
        ConfigError: no such source, or one that has no levels to choose from.
        DataError: a file is missing, cannot be read or cannot be written, or nothing of it can be used.
    """
    if name not in names(kind):
        raise ConfigError(f"{name} is no source of {kind}: choose {', '.join(names(kind))}")
    if levels and name != "kernelbench":
        raise ConfigError(f"{name} names no levels: leave out --levels, which chooses from kernelbench")
    source = SOURCES[name]
    read = kernelbench_rows.records(path, levels) if name == "kernelbench" else _records(source, path)
    return convert(read, source.make, source.schema, out)


def _records(source: Source, path: Path) -> Iterator[Record]:
    return records_of(files_of(path, source.wanted))
