# SPDX-License-Identifier: Apache-2.0
"""The record of each turn that a rollout passes on: its tokens, its reward, and the verdict."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, TypeAdapter

from verl_kernel.env import EvalResult
from verl_kernel.reward.profiling import earns

TURNS_COLUMN, HASH_COLUMN = "kernel_turns", "task_hash"
"""Columns of verl's validation files: all turns of a trajectory as JSON, and its task's `Task.text_hash`."""


class JudgedTurn(BaseModel):
    """One judged turn, as trainer and bench share it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    result: EvalResult
    """Always present: an answer without a program has a verdict too."""
    reward: float
    """What it earned, before the marker rule of `advantage.turns` is applied; 0 where it could not be judged."""
    code: str | None = None
    """The candidate's source; null where the answer held none."""
    shown: tuple[int, ...] = ()
    """Earlier turns, from 1, that its prompt showed."""
    prompt_tokens: int | None = None
    """Number of tokens of its prompt; null where it is unknown."""


class TurnRecord(JudgedTurn):
    """One turn of a trainer's trajectory; travels through TransferQueue as JSON in the field `kernel_turns`."""

    start: int
    """Index in the response of the turn's first model token; 0 if every turn has a separate row."""
    stop: int
    """One past the turn's last model token."""
    pay_decoys: bool = False
    """Whether decoys earned what kernels earn in the run (`kernelgym.reward.pay_decoys`)."""
    prompt_tokens: int = 0
    novel: bool | None = None
    """Whether its program is novel by normal form (`reward.novelty`); false without a program, null if not measured."""
    novel_bytes: bool | None = None
    """The same by bytes."""

    @property
    def earns(self) -> bool:
        """Whether the candidate may earn (`profiling.earns`)."""
        return earns(self.result, self.pay_decoys)

    @property
    def novelty(self) -> tuple[bool, bool] | None:
        """Return whether the program is novel by normal form and by bytes; None without one, or if not measured."""
        if self.code is None or self.novel is None or self.novel_bytes is None:
            return None
        return self.novel, self.novel_bytes

    @property
    def tokens(self) -> int:
        """Return the tokens of prompt and answer together."""
        return self.prompt_tokens + self.stop - self.start


def judging_cost(turns: Iterable[TurnRecord]) -> tuple[int, float]:
    """Return how many candidates of `turns` were judged, and the seconds that judges spent on them."""
    judged = [turn.result for turn in turns if turn.code is not None]
    return len(judged), sum(sum(result.stage_seconds.values()) for result in judged)


_TURNS = TypeAdapter(tuple[TurnRecord, ...])


def dump_turns(turns: tuple[TurnRecord, ...] | list[TurnRecord]) -> str:
    """Serialise the turns of one trajectory."""
    return _TURNS.dump_json(tuple(turns)).decode()


def load_turns(text: str | bytes) -> tuple[TurnRecord, ...]:
    """Read what `dump_turns` wrote."""
    return _TURNS.validate_json(text)
