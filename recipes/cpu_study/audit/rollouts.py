# SPDX-License-Identifier: Apache-2.0
"""The rollouts that an audit reads: groups of a prompt, with tokens, verdicts and what PRS kept of them.

A file holds a JSON object a line, a trajectory, in the form that a trainer writes with
`trainer.v1.sampler.sampler_kwargs.record_dir` (`verl_kernel.sampler.logs`). The audit reads `key`, `turns` with `kept`,
`prompts`, `responses` and `generated_mask`, and `rollout_log_probs` where they are known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_kernel.errors import DataError
from verl_kernel.reward.record import TurnRecord
from verl_kernel.sampler.groups import prompt_of


@dataclass(frozen=True)
class Rollout:
    """A trajectory with P tokens of prompt and T of response."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]
    mask: tuple[int, ...]
    """1 on the policy's own tokens, of T."""
    turns: tuple[TurnRecord, ...]
    kept: tuple[bool, ...]
    """Whether PRS kept each turn."""
    log_probs: tuple[float, ...] | None = None
    """What the sampler gave the response's tokens, of T."""

    def line(self, key: str) -> dict[str, Any]:
        """Return the rollout as a line of a file; `key` is `<prompt>_<session>_<output>`."""
        turns = [
            {**turn.model_dump(mode="json"), "kept": kept} for turn, kept in zip(self.turns, self.kept, strict=True)
        ]
        tokens = {"prompts": self.prompt, "responses": self.response, "generated_mask": self.mask}
        return {"key": key, "step": 0, "turns": turns, **tokens}

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> Rollout:
        """Read a line of a file."""
        kept = tuple(bool(turn["kept"]) for turn in line["turns"])
        turns = tuple(
            TurnRecord.model_validate({key: value for key, value in turn.items() if key != "kept"})
            for turn in line["turns"]
        )
        names = ("prompts", "responses", "generated_mask")
        prompt, response, mask = (tuple(map(int, line[name])) for name in names)
        log_probs = line.get("rollout_log_probs")
        if not turns or not prompt or len(response) != len(mask) or turns[-1].stop > len(response):
            raise ValueError("its turns and masks do not fit its response")
        return cls(prompt, response, mask, turns, kept, None if log_probs is None else tuple(map(float, log_probs)))


Group = tuple[Rollout, ...]
"""The rollouts of a prompt."""


def read_groups(folder: Path) -> list[Group]:
    """Read the groups of a folder of rollouts, in order of their files and lines; those of one rollout are left out.

    Raises:
        DataError: there are none, or a line is not a rollout.
    """
    groups: dict[str, list[Rollout]] = {}
    for path in sorted(folder.glob("*.jsonl"), key=lambda path: (len(path.stem), path.stem)):
        for key, rollout in read_file(path):
            # A prompt of a later step has a group of its own.
            groups.setdefault(f"{path.stem}/{prompt_of(key)}", []).append(rollout)
    complete = [tuple(group) for group in groups.values() if len(group) > 1]
    if not complete:
        raise DataError(
            f"{folder} holds no groups of rollouts: name a folder that a training has written with "
            "trainer.v1.sampler.sampler_kwargs.record_dir, or leave --rollouts out"
        )
    return complete


def read_file(path: Path) -> list[tuple[str, Rollout]]:
    """Read the rollouts of a file by their keys.

    Raises:
        DataError: the file cannot be read, or a line is not a rollout.
    """
    rollouts: list[tuple[str, Rollout]] = []
    try:
        for text in path.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            rollouts.append((str(line["key"]), Rollout.of(line)))
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise DataError(
            f"{path}, line {len(rollouts) + 1}: this is no rollout as trainer.v1.sampler.sampler_kwargs.record_dir "
            f"keeps them ({exc!r:.120})"
        ) from exc
    return rollouts
