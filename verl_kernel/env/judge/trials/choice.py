# SPDX-License-Identifier: Apache-2.0
"""`kernelgym.trial_choice`: how many trials of each kind a task gets in training, chosen offline (`verl-kernel aces`).

The file names kinds only. Inputs are drawn from the secret of each evaluation as ever, and so are the places of the
trials; every kind keeps at least one. A program that has read the file knows no input and no place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from verl_kernel.env.reference.kinds import KINDS, Kind
from verl_kernel.env.request import EvalRequest
from verl_kernel.errors import ConfigError

FORMAT = 1
MOST_TRIALS = 64
Counts = Mapping[Kind, int]


@dataclass(frozen=True)
class TrialChoice:
    """Numbers of trials by kind, for the tasks of a file."""

    counts: Mapping[str, Counts] = field(default_factory=dict)
    """By fingerprint of the task."""

    @classmethod
    def read(cls, path: str | None) -> TrialChoice:
        """Read a file; None is the choice for no task.

        Raises:
            ConfigError: it cannot be read, or leaves out a kind.
        """
        if path is None:
            return cls()
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as exc:
            raise ConfigError(f"kernelgym.trial_choice: {path} cannot be read ({exc}): {_REMEDY}") from None
        if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("tasks"), dict):
            raise ConfigError(f"kernelgym.trial_choice: {path} holds no choice of trials: {_REMEDY}")
        return cls({key: _counts(path, entry) for key, entry in data["tasks"].items()})

    def of(self, request: EvalRequest) -> Counts | None:
        """The numbers for a request; None for a task that is not named, and for validation."""
        return None if request.validate else self.counts.get(request.task.fingerprint)


_REMEDY = "write one with `verl-kernel aces`, or leave the option null"


def _counts(path: str, entry: Any) -> Counts:
    counts = entry.get("kinds") if isinstance(entry, dict) else None
    fit = isinstance(counts, dict) and set(counts) == set(KINDS)
    if not fit or not all(type(count) is int and count >= 1 for count in cast(dict[str, Any], counts).values()):
        raise ConfigError(
            f"kernelgym.trial_choice: {path} gives a task the kinds {counts!r}; it must give each of "
            f"{', '.join(KINDS)} one trial or more"
        )
    if sum(cast(Counts, counts).values()) > MOST_TRIALS:
        raise ConfigError(f"kernelgym.trial_choice: {path} gives a task more than {MOST_TRIALS} trials: give fewer")
    return cast(Counts, counts)
