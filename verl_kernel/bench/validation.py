# SPDX-License-Identifier: Apache-2.0
"""Reads the turns of a validation from the files that verl wrote into `trainer.validation_data_dir`.

verl writes one line per row: one for a trajectory, or one for each of its turns. Every line of a trajectory carries all
of its turns (`rollout.trajectory`). Its `uid` is `<prompt>_<sample>_<row>`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_kernel.bench.records import BenchTurn
from verl_kernel.errors import DataError
from verl_kernel.reward.record import HASH_COLUMN, TURNS_COLUMN, TurnRecord, load_turns

_WANTED = "name the folder of `verl-kernel bench --out`, or a file of trainer.validation_data_dir"


@dataclass(frozen=True)
class ValidationRow:
    """One line of the file."""

    prompt: str
    """Identifies the prompt within one run."""
    sample: int
    output: str
    turns: tuple[TurnRecord, ...]
    task_hash: str

    @classmethod
    def of(cls, line: Any) -> ValidationRow:
        """Read a line; raises ValueError, KeyError or TypeError if it is not such a row."""
        prompt, sample, _ = str(line["uid"]).rsplit("_", 2)
        return cls(prompt, int(sample), str(line["output"]), load_turns(line[TURNS_COLUMN]), str(line[HASH_COLUMN]))


def read_validation(path: Path) -> list[BenchTurn]:
    """Read a validation's turns, by prompt, sample and turn.

    Args:
        path: `<step>.jsonl` in the folder that verl wrote; step 0 with `trainer.val_only=True`.

    Raises:
        DataError: the file cannot be read, or was written without `kernel_agent`.
    """
    trajectories: defaultdict[tuple[str, int], list[ValidationRow]] = defaultdict(list)
    for row in read_rows(path):
        trajectories[row.prompt, row.sample].append(row)
    return [turn for rows in trajectories.values() for turn in _turns(rows)]


def _turns(rows: Sequence[ValidationRow]) -> Iterator[BenchTurn]:
    """Yield the turns of a trajectory, whose rows are in order."""
    first = rows[0]
    is_split = len(rows) == len(first.turns)
    for number, turn in enumerate(first.turns, 1):
        yield BenchTurn(
            task_id=turn.result.task_id,
            task_hash=first.task_hash,
            sample=first.sample,
            turn=number,
            result=turn.result,
            reward=turn.reward,
            code=turn.code,
            completion=rows[number - 1].output if is_split else None,
            failure="no_code" if turn.code is None else None,
            shown=turn.shown,
            prompt_tokens=turn.prompt_tokens,
            completion_tokens=turn.stop - turn.start,
        )


def read_rows(path: Path) -> Iterator[ValidationRow]:
    """Yield the lines of a validation (raises DataError, as `read_validation`)."""
    if not path.exists():
        raise DataError(f"{path} does not exist: {_WANTED}")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as exc:
        raise DataError(f"{path} cannot be read ({exc.strerror or exc}): {_WANTED}") from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is no text: {_WANTED}") from None
    *whole, _cut = text.split("\n")
    if not whole:
        raise DataError(f"{path} holds no row of a validation: {_WANTED}")
    for number, line in enumerate(whole, 1):
        try:
            yield ValidationRow.of(json.loads(line))
        except (ValueError, KeyError, TypeError) as exc:
            raise DataError(
                f"{path}, line {number} is no row of a validation with the agent loop kernel_agent ({exc!r:.200}): "
                f"{_WANTED}"
            ) from None
