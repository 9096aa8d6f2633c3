# SPDX-License-Identifier: Apache-2.0
"""What a rollout hands on about each of its turns: where its tokens are, what it earned, and why."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, TypeAdapter

from verl_kernel.env import EvalResult


class TurnRecord(BaseModel):
    """One turn of a trajectory; travels through TransferQueue as JSON in the field `kernel_turns`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    start: int
    """Index in the response of the turn's first model token."""
    stop: int
    """One past the turn's last model token."""
    reward: float
    """The turn's reward before the marker rule of `advantage.turns` is applied."""
    result: EvalResult
    code: str | None = None
    """The candidate's source; `None` where the answer held none."""


_TURNS = TypeAdapter(tuple[TurnRecord, ...])


def dump_turns(turns: tuple[TurnRecord, ...] | list[TurnRecord]) -> str:
    """Serialise the turns of one trajectory."""
    return _TURNS.dump_json(tuple(turns)).decode()


def load_turns(text: str | bytes) -> tuple[TurnRecord, ...]:
    """Read what `dump_turns` wrote."""
    return _TURNS.validate_json(text)
