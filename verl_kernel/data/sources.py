# SPDX-License-Identifier: Apache-2.0
"""The published data sets that can be read: their locations, and the converters to rows or conversations.

By the columns of their cards:

- Dr. Kernel (arXiv 2602.05885): RL and validation rows have verl's form: `data_source`, `prompt` [{role, content}],
  `ability`, `reward_model` {ground_truth, style}, `extra_info`. The cold start has `messages`, five rounds of user and
  assistant, and facts about the trajectory (`final_speedup`, `best_round`, `original_python_code`, ...).
- KernelBook: modules of public repositories; `python_code` is the reference, `entry_point` its class.
- Kernel-Smith: RL rows have `message` where verl has `prompt`, and `reward_model.ground_truth` is JSON text with
  `reference_code`; the program to start from stays in `extra_info.source`. SFT rows have `_id` and `messages`.
- SOL-ExecBench and FlashInfer-Bench: definitions with workloads (`definitions`).
- AgentKernelArena: folders of tasks (`arena`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import pyarrow as pa

from verl_kernel.data import arena, conversations, definitions, kernelbench, own_programs, rows
from verl_kernel.data.foreign_rows import row_for_prompt, row_of_verl
from verl_kernel.data.published import Record, Written, convert, files_of, records_of
from verl_kernel.data.rows import task_prompt
from verl_kernel.errors import ConfigError, DataError
from verl_kernel.option_group import nearest


@dataclass(frozen=True)
class Source:
    """A published data set."""

    kind: Literal["rows", "talks"]
    repository: str
    """Its name on `host`."""
    make: Callable[..., rows.Row]
    """Converts a published row, given with its number; raises DataError."""
    read: Callable[[Path, str], Iterator[Record]] = lambda path, advice: records_of(files_of(path, advice))
    """Yields what `make` takes from a path; the second argument ends the sentence for a user who does not have it."""
    host: Literal["huggingface.co", "github.com"] = "huggingface.co"
    files: str = "the parquet files"
    """Its files that are read."""
    file: str = ""
    """Name of its file; empty if its card names none."""
    revision: str = ""
    """Revision to pin, all 40 characters (the hub takes no shorter one); empty if no particular one is needed."""

    @property
    def advice(self) -> str:
        """Return what to fetch and where to put it."""
        if self.host == "github.com":
            return f"on a machine with a network, clone https://github.com/{self.repository}, and name the folder here"
        what = f"the file {self.file}" if self.file else self.files
        pinned = f" at revision {self.revision}" if self.revision else ""
        command = f"hf download {self.repository} --repo-type dataset --local-dir DIR"
        command += f" --revision {self.revision}" if self.revision else ""
        return (
            f"on a machine with a network, fetch {what} of the data set {self.repository}{pinned} from "
            f"huggingface.co (`{command}`), and name the file or the folder here"
        )

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the converted file."""
        return rows.SCHEMA if self.kind == "rows" else conversations.SCHEMA


def _kernelbook_row(record: Record, number: int, targets: Sequence[str] = ()) -> rows.Row:
    """Convert a row of KernelBook and add this package's prompt (raises DataError).

    Inductor's version of the module is left out: it calls Inductor's runtime, which is forbidden to candidates.
    """
    reference, entry = record.get("python_code"), record.get("entry_point") or "Model"
    if not isinstance(reference, str) or not reference.strip():
        raise DataError("there is no reference: the column python_code is empty")
    used = {"python_code", "entry_point", "triton_code", "original_triton_code"}
    identity = record.get("uuid")
    return row_for_prompt(
        task_prompt(reference, str(entry), targets),
        reference,
        str(entry),
        number,
        source="kernelbook",
        task_id="" if identity is None else f"kernelbook-{identity}",
        data_source="kernelbook",
        level=None,
        metadata={name: value for name, value in record.items() if name not in used},
    )


SOURCES = {
    "kernelbench": Source("rows", kernelbench.REPOSITORY, kernelbench.task_row),
    "drkernel-rl": Source(
        "rows",
        "hkust-nlp/drkernel-rl-data",
        partial(row_of_verl, source="drkernel-rl"),
        file="cuda_llm_rl_thinking_1025.parquet",
    ),
    # The validation set is level 2 of KernelBench.
    "drkernel-validation": Source(
        "rows",
        "hkust-nlp/drkernel-validation-data",
        partial(row_of_verl, source="drkernel-validation", level=2),
        file="validation_data_thinking.parquet",
    ),
    "drkernel-coldstart": Source("talks", "hkust-nlp/drkernel-coldstart-8k", conversations.talk_of),
    # Pinned: later revisions have another licence.
    "kernelbook": Source(
        "rows", "GPUMODE/KernelBook", _kernelbook_row, revision="1576375bc92745b490e1cdf2fce01eba76d9f847"
    ),
    "kernelsmith-rl": Source("rows", "CoopReason/Kernel-Smith-RL-2K", partial(row_of_verl, source="kernelsmith-rl")),
    "kernelsmith-sft": Source("talks", "CoopReason/Kernel-Smith-SFT-71K", conversations.talk_of),
    "sol-execbench": Source(
        "rows", "nvidia/SOL-ExecBench", partial(definitions.task_row, source="sol-execbench"), read=definitions.records
    ),
    "flashinfer-trace": Source(
        "rows",
        "flashinfer-ai/flashinfer-trace",
        partial(definitions.task_row, source="flashinfer-trace"),
        read=definitions.records,
        files="the folders definitions and workloads",
    ),
    "agentkernelarena": Source("rows", arena.REPOSITORY, arena.task_row, read=arena.records, host="github.com"),
}
"""The sources by their names on the command line."""
OWN = "folder"
"""Name of the source that is a folder of the user's own reference programs."""
_ASKED = ("kernelbench", "sol-execbench", "flashinfer-trace", "agentkernelarena", "kernelbook", OWN)
"""Sources without prompts, which get one of ours."""


def names(kind: str) -> list[str]:
    """Return the names of the sources of a kind."""
    return [name for name, source in SOURCES.items() if source.kind == kind]


def convert_source(
    name: str, kind: str, path: Path, out: Path, *, levels: Collection[int] = (), targets: Sequence[str] = ()
) -> Written:
    """Convert a published data set, or a folder of programs, to rows or conversations.

    Args:
        name: name of the source, or `folder`.
        kind: `rows` or `talks`.
        path: its file, or a folder of its files.
        out: parquet file to write.
        levels: wanted levels of KernelBench; all if empty.
        targets: GPUs that prompts of ours name.

    Raises:
        ConfigError: there is no such source, or it has no levels to choose from, or prompts of its own.
        DataError: a file is missing, cannot be read or cannot be written, or none of its rows can be used.
    """
    choices = [*names(kind), *([OWN] if kind == "rows" else [])]
    if name not in choices:
        raise ConfigError(f"{name} is no source of {kind}: {nearest(name, choices)}choose {', '.join(choices)}")
    if levels and name != "kernelbench":
        raise ConfigError(f"{name} names no levels: leave out --levels, which chooses from kernelbench")
    if targets and name not in _ASKED:
        raise ConfigError(f"{name} has prompts of its own: leave out --targets, which {' and '.join(_ASKED)} take")
    if name == OWN:
        return convert(own_programs.records(path), partial(own_programs.task_row, targets=targets), rows.SCHEMA, out)
    source = SOURCES[name]
    make = partial(source.make, targets=targets) if targets else source.make
    read = kernelbench.records(path, levels) if name == "kernelbench" else source.read(path, source.advice)
    return convert(read, make, source.schema, out)
