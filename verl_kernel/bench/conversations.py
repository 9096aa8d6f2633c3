# SPDX-License-Identifier: Apache-2.0
"""The conversations of a run that led to a kernel, for the cold start of another model.

Messages are rebuilt as in the run's prompts: the task, the answers that the prompt showed, and the feedback on them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from verl_kernel.bench.models.endpoint import split_chat_tokens
from verl_kernel.bench.records import BenchTurn, RunHeader, read_run
from verl_kernel.bench.suites import Suite, SuiteItem
from verl_kernel.data.conversations import Talk, checked_talk, make_talk
from verl_kernel.errors import DataError
from verl_kernel.rollout.context import PastTurn, rebuilt_messages
from verl_kernel.rollout.feedback import format_feedback

Keep = Literal["best", "last"]
"""The turn that ends a conversation: the one with the highest reward, or the last one."""
_WRONG = "the turn that it would end with is not right"
_SLOW = "the turn that it would end with is not fast enough"
_NO_TEXT = "an answer's text was not kept"
_MANY = "the task has as many that are faster"


@dataclass
class TalkSelection:
    """Conversations of a run, and why others were left out."""

    talks: list[Talk] = field(default_factory=list)
    tasks: int = 0
    """Number of their tasks."""
    left_out: Counter[str] = field(default_factory=Counter)


def talks_of_run(
    folder: Path, suite: Suite, keep: Keep, least_speedup: float = 0.0, per_task: int | None = None
) -> TalkSelection:
    """Return the conversations of a run that end with a right answer; those of a task are sorted by speed.

    Args:
        folder: folder of the run.
        suite: suite of the run, which has the tasks' texts.
        keep: which turn ends a conversation.
        least_speedup: smallest sure speedup of the last answer.
        per_task: largest number of conversations of a task.

    Raises:
        DataError: the folder holds no run, or a run of another suite.
    """
    header, turns = read_run(folder)
    _refuse_other(header, suite, folder)
    played: defaultdict[str, dict[int, list[BenchTurn]]] = defaultdict(lambda: defaultdict(list))
    for turn in sorted(turns, key=lambda turn: turn.turn):
        played[turn.task_id][turn.sample].append(turn)
    selection = TalkSelection()
    for item in suite.tasks:
        histories = list(_chosen(played[item.task.task_id].values(), keep, least_speedup, selection.left_out))
        histories.sort(key=lambda history: -(history[-1].result.sure_speedup or 0.0))
        selection.left_out[_MANY] += max(0, len(histories) - (len(histories) if per_task is None else per_task))
        selection.talks += [_talk(item, history, header) for history in histories[:per_task]]
        selection.tasks += bool(histories)
    selection.left_out = +selection.left_out  # drop reasons with a count of 0
    return selection


def _refuse_other(header: RunHeader, suite: Suite, folder: Path) -> None:
    if (header.suite_hash, header.prompt_hash) != (suite.hash, suite.prompt_hash):
        raise DataError(
            f"{folder} holds a run on {header.suite}, whose tasks or prompts are not those of this suite: name the "
            "suite that `verl-kernel bench` was given, with the same --levels and --tasks"
        )


def _chosen(
    trajectories: Iterable[list[BenchTurn]], keep: Keep, least_speedup: float, left_out: Counter[str]
) -> Iterator[list[BenchTurn]]:
    """Yield trajectories up to the turn that ends them, if they are worth learning from."""
    for history in trajectories:
        whole = history if keep == "last" else history[: _best(history) + 1]
        if not whole[-1].result.rewarded:
            left_out[_WRONG] += 1
        elif least_speedup and (whole[-1].result.sure_speedup or 0.0) < least_speedup:
            left_out[_SLOW] += 1
        elif any(turn.completion is None for turn in whole):
            left_out[_NO_TEXT] += 1
        else:
            yield whole


def _best(history: Sequence[BenchTurn]) -> int:
    """Return the index of the highest reward among right answers, the earliest of several."""
    rewards = [turn.reward if turn.result.rewarded else float("-inf") for turn in history]
    return rewards.index(max(rewards))


def _talk(item: SuiteItem, history: Sequence[BenchTurn], header: RunHeader) -> Talk:
    last = history[-1]
    past = [PastTurn(turn.completion or "", _feedback(item, turn, header), turn.reward) for turn in history[:-1]]
    messages = rebuilt_messages(item.messages, past, last.shown)
    messages.append({"role": "assistant", "content": last.completion or ""})
    facts = {
        "task_id": last.task_id,
        "task_hash": last.task_hash,
        "sample": last.sample,
        "turn": last.turn,
        "speedup": last.result.speedup,
        "speedup_low": last.result.sure_speedup,
        "reward": last.reward,
        "model": header.model,
        "suite": header.suite,
    }
    return make_talk(checked_talk(messages), facts)


def _feedback(item: SuiteItem, turn: BenchTurn, header: RunHeader) -> str:
    return format_feedback(
        turn.result,
        header.feedback_chars,
        candidate_class=item.task.candidate_class,
        form=header.feedback,
        clean=split_chat_tokens,
    )
