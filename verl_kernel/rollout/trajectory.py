# SPDX-License-Identifier: Apache-2.0
"""The growing token record of one trajectory, and the rows that it becomes.

In training one row holds every turn: `response_mask` is 1 on model tokens, 0 on feedback, and each turn's reward sits
on the turn's last model token (`advantage.turns` owns that rule). A trajectory with a turn that could not be judged has
no token in the mask at all.

In a validation each turn may have a prompt and a row of its own. Every row carries the figures of the whole trajectory:
its score is the sum over all turns, as for a trajectory in one row. verl takes its figures from the last row, averages
the numbers, and writes numbers and texts into the files of `trainer.validation_data_dir`, from which `bench.validation`
reads every turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from verl_kernel.advantage.turns import place_turn_rewards
from verl_kernel.env import Task
from verl_kernel.figures.attempts import attempt_of, best
from verl_kernel.reward.judging import Judged
from verl_kernel.reward.novelty import ColdStart
from verl_kernel.reward.options import Context
from verl_kernel.reward.record import HASH_COLUMN, TURNS_COLUMN, TurnRecord, dump_turns
from verl_kernel.reward.rows import UNJUDGED
from verl_kernel.reward.turn_end import TurnEnd
from verl_kernel.rollout.context import Message, PastTurn, rebuilt_messages, shown_turns

_FIGURES = {
    "acc": "acc",
    "best_acc": "best_turn_acc",
    "fast@1.2": "last_turn_fast@1.2",
    "best_fast@1.2": "best_turn_fast@1.2",
}


@dataclass
class Trajectory:
    """Token ids (prompt and response), mask and log-probs of the response, and the finished turns."""

    prompt_length: int
    ids: list[int]
    pay_decoys: bool = False
    """The option `kernelgym.reward.pay_decoys`."""
    cold_start: ColdStart | None = None
    """The cold start that programs are compared with; None measures no novelty."""
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] | None = None
    turns: list[TurnRecord] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    def take_tokens(self, merged: Any, mask: list[int], logprobs: list[float] | None) -> None:
        """Replace the tokens by the result of one of verl's continuous-token merges."""
        self.ids, self.mask, self.logprobs = merged.token_ids, mask, logprobs

    def close_turn(self, end: TurnEnd) -> None:
        """End a turn as the chat template would, without training on tokens that the policy did not write.

        If the end is the first token of the next message, the template writes it with that message. verl adds the text
        between the end and the next message, but only for the model families that it knows.
        """
        if end.opens_next:
            if self.mask and self.ids[-1] == end.token_id:
                for values in (self.ids, self.mask, self.logprobs):
                    if values is not None:
                        values.pop()
            return
        closing = [*([] if self.ids[-1] == end.token_id else [end.token_id]), *end.behind]
        self.ids += closing
        self.mask += [0] * len(closing)
        if self.logprobs is not None:
            self.logprobs += [0.0] * len(closing)

    def record_turn(self, start: int, stop: int, judged: Judged) -> None:
        """Add a judged turn with model tokens `[start, stop)` of the response; its prompt is everything before."""
        novel, novel_bytes = (None, None) if self.cold_start is None else self.cold_start.novelty(judged.code)
        self.turns.append(
            TurnRecord(
                start=start,
                stop=stop,
                reward=judged.reward,
                result=judged.result,
                pay_decoys=self.pay_decoys,
                novel=novel,
                novel_bytes=novel_bytes,
                code=judged.code,
                prompt_tokens=self.prompt_length + start,
                shown=tuple(range(1, len(self.turns) + 1)),
            )
        )

    def output(self, metrics: dict[str, Any], validation: dict[str, Any] | None = None) -> KernelAgentOutput:
        """Cut the trajectory after its last turn and hand it to verl.

        Args:
            metrics: times in seconds that verl reports.
            validation: further figures of a validation's trajectory.
        """
        stop, figures = self.turns[-1].stop, summarise(self.turns)
        return KernelAgentOutput(
            prompt_ids=self.ids[: self.prompt_length],
            response_ids=self.ids[self.prompt_length :][:stop],
            response_mask=[0] * stop if figures[UNJUDGED] else self.mask[:stop],
            response_logprobs=None if self.logprobs is None else self.logprobs[:stop],
            reward_score=sum(turn.reward for turn in self.turns),
            num_turns=2 * len(self.turns),
            metrics=metrics,
            turns=tuple(self.turns),
            extra_fields={
                **self.extra,
                "kernel_gym_seconds": float(metrics.get("tool_calls", 0.0)),
                "kernel_generate_seconds": float(metrics.get("generate_sequences", 0.0)),
                "reward_extra_info": figures | (validation or {}),
            },
        )


class KernelAgentOutput(AgentLoopOutput):  # type: ignore[misc]
    """verl's agent loop output with a reward for every turn instead of one on the last token."""

    turns: Annotated[tuple[TurnRecord, ...], Field(exclude=True)]
    """The turns, serialised only when the row is written to TransferQueue."""

    def as_dict(self) -> dict[str, Any]:
        """Return verl's row with `rm_scores` of shape (response length,) in float32, and its turns as JSON."""
        row: dict[str, Any] = super().as_dict()
        # A validation has already added them, for verl's files.
        written = row["extra_fields"]["reward_extra_info"].get(TURNS_COLUMN)
        row["extra_fields"][TURNS_COLUMN] = written or dump_turns(self.turns)
        row["rm_scores"] = place_turn_rewards(
            len(row["response_mask"]), [turn.stop for turn in self.turns], [turn.reward for turn in self.turns]
        )
        return row


def summarise(turns: list[TurnRecord]) -> dict[str, float]:
    """Return the figures of a trajectory that verl's validation averages; `acc`, the last turn's, is its core metric.

    All of them are numbers in every trajectory: verl drops a sample with a `None`, which would inflate the mean. So a
    candidate that is not correct, or was not judged, has a speedup of 0. Novelty is among them if it was measured.
    """
    attempts = [attempt_of(turn.result, novelty=turn.novelty) for turn in turns]
    last, top = attempts[-1], best(attempts)
    lost = any(attempt.lost for attempt in attempts)
    figures = {"acc": float(last.correct), "best_turn_acc": float(top.correct), UNJUDGED: float(lost)}
    for name, attempt in (("last_turn", last), ("best_turn", top)):
        figures |= {f"{name}_fast@1.2": float(attempt.is_fast(1.2)), f"{name}_speedup": attempt.speedup or 0.0}
        figures[f"{name}_fast@1.2_sure"] = float(attempt.is_surely_fast(1.2))
    if turns[-1].novel is None:
        return figures
    return figures | {
        "novel": float(bool(last.novel)),
        "novel_bytes": float(bool(last.novel_bytes)),
        "novel_acc": float(last.correct and bool(last.novel)),
        "best_turn_novel_acc": float(top.correct and bool(top.novel)),
    }


def texts(task: Task, turns: Sequence[TurnRecord]) -> dict[str, str]:
    """Return the texts that only the files hold."""
    return {TURNS_COLUMN: dump_turns(list(turns)), HASH_COLUMN: task.text_hash}


def turn_figures(turns: Sequence[TurnRecord], max_turns: int, window: int | None = None) -> dict[str, float]:
    """Return `turn_k_*`, the figures of the last and of the best answer until turn k, and the cost of the turns.

    Only validation-only runs report them, because verl needs seconds to bootstrap each figure.

    Args:
        turns: turns of a trajectory; after an early end its last and its best answer stay.
        max_turns: number of turns that were asked for; the figures of the last one are those of `summarise`.
        window: how many earlier turns a prompt shows if they fit; None for all.
    """
    figures = {"tokens": float(sum(turn.tokens for turn in turns))}
    for number in range(1, max_turns):
        until = summarise(list(turns[:number]))
        figures |= {f"turn_{number}_{name}": until[key] for name, key in _FIGURES.items()}
    if window is not None:
        narrowed = [len(turn.shown) < min(window, earlier) for earlier, turn in enumerate(turns)]
        figures["narrowed"] = sum(narrowed) / len(turns)
    return figures


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

    def prompt(self, turns_shown: Sequence[int]) -> list[Message]:
        """Return the messages of a prompt that shows these turns."""
        return rebuilt_messages(self.messages, self._past, turns_shown)

    def record(self, row: Trajectory, turns_shown: tuple[int, ...], judged: Judged) -> None:
        """Add a judged turn with the row of its prompt and answer."""
        row.record_turn(0, len(row.mask), judged)
        self.turns.append(row.turns[0].model_copy(update={"shown": turns_shown}))
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
