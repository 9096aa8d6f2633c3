# SPDX-License-Identifier: Apache-2.0
"""A trajectory of a validation whose turns have a separate prompt and row each.

verl writes all rows into its validation files and takes its figures from the last one. Every row carries the figures of
the whole trajectory: its score is the sum over all turns, as for a trajectory in one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from verl_kernel.env import Task
from verl_kernel.reward.judging import Judged
from verl_kernel.reward.options import Context
from verl_kernel.reward.record import TurnRecord
from verl_kernel.rollout.context import Message, PastTurn, rebuilt_messages, shown_turns
from verl_kernel.rollout.trajectory import Trajectory, summarise
from verl_kernel.rollout.validation import texts, turn_figures


@dataclass
class RebuiltTrajectory:
    """The task, its messages and the turns played so far, kept outside of any prompt."""

    task: Task
    messages: Sequence[Message]
    context: Context
    window: int
    turns: list[TurnRecord] = field(default_factory=list)
    _past: list[PastTurn] = field(default_factory=list)
    _rows: list[Trajectory] = field(default_factory=list)

    def shown(self, window: int) -> tuple[int, ...]:
        """Return the earlier turns that the next prompt shows if at most `window` of them fit."""
        return shown_turns([turn.reward for turn in self._past], self.context, window)

    def prompt(self, shown: Sequence[int]) -> list[Message]:
        """Return the messages of a prompt that shows these turns."""
        return rebuilt_messages(self.messages, self._past, shown)

    def record(self, row: Trajectory, shown: tuple[int, ...], judged: Judged) -> None:
        """Add a judged turn with the row of its prompt and answer."""
        row.record_turn(0, len(row.mask), judged)
        self.turns.append(row.turns[0].model_copy(update={"shown": shown}))
        self._rows.append(row)

    def remember(self, answer: str, feedback: str) -> None:
        """Keep the last turn's answer and feedback for later prompts."""
        self._past.append(PastTurn(answer, feedback, self.turns[-1].reward))

    def outputs(self, metrics: dict[str, Any], max_turns: int) -> list[AgentLoopOutput]:
        """Return one row per turn."""
        figures = summarise(self.turns) | turn_figures(self.turns, max_turns, self.window)
        info = {**figures, **texts(self.task, self.turns)}
        return [
            AgentLoopOutput(
                prompt_ids=row.ids[: row.prompt_length],
                response_ids=row.ids[row.prompt_length :],
                response_mask=row.mask,
                response_logprobs=row.logprobs,
                reward_score=sum(turn.reward for turn in self.turns),
                num_turns=2 * len(self.turns),
                metrics=metrics,
                extra_fields={**row.extra, "reward_extra_info": info},
            )
            for row in self._rows
        ]
