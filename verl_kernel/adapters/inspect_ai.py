# SPDX-License-Identifier: Apache-2.0
"""Inspect: a suite of kernel tasks with several turns of feedback, scored by the gym.

inspect eval verl_kernel/kernels -T suite=tasks -T turns=3 --model openai/gpt-4o
"""

from __future__ import annotations

from inspect_ai import Task as InspectTask
from inspect_ai import task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageSystem, ChatMessageUser
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver

from verl_kernel.adapters.judges import opened
from verl_kernel.bench.suites import Suite, SuiteItem, load_suite
from verl_kernel.commands.gym_options import chosen
from verl_kernel.env import EvalResult, GymOptions, Task
from verl_kernel.figures.attempts import attempt_of
from verl_kernel.reward.judging import judge_answer
from verl_kernel.rollout.feedback import format_feedback

_JUDGED = "kernelgym"
"""Key of a sample's store that holds the result of its last answer."""
_MESSAGES = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}


@task  # type: ignore[untyped-decorator]
def kernels(
    suite: str = "cpu",
    *,
    turns: int = 3,
    device: str = "auto",
    num_judges: int = 1,
    trials: int = 5,
    address: str | None = None,
    address_key: str | None = None,
) -> InspectTask:
    """Return a suite as a task of Inspect: write a kernel, read the verdict, write a better one.

    Args:
        suite: `cpu`, `kernelbench:PATH`, `FILE.parquet` or a `FOLDER` of references, as in `verl-kernel bench`.
        turns: answers of a sample; the last one is scored.
        device: where kernels run, for judges on this machine.
        num_judges: judges on this machine.
        trials: correctness trials of an answer.
        address: service whose judges judge; None starts judges here.
        address_key: file with a key of that service.
    """
    options = chosen(
        {"device": device, "address": address, "address_key": address_key, "num_judges": num_judges, "trials": trials}
    )
    return InspectTask(
        dataset=samples_of(load_suite(suite)),
        solver=kernel_turns(options, turns),
        scorer=kernel_score(),
        name="kernels",
    )


def samples_of(suite: Suite) -> MemoryDataset:
    """Return the tasks of a suite as samples, with the reference in their metadata."""
    return MemoryDataset([_sample(item) for item in suite.tasks], name=suite.name)


def _sample(item: SuiteItem) -> Sample:
    messages: list[ChatMessage] = [_MESSAGES[message["role"]](content=message["content"]) for message in item.messages]
    task = item.task
    metadata = {"reference": task.reference, "task_id": task.task_id, "entry_point": task.entry_point}
    return Sample(input=messages, target="", id=task.task_id, metadata=metadata)


@solver  # type: ignore[untyped-decorator]
def kernel_turns(options: GymOptions, turns: int) -> Solver:
    """Generate answers, and tell the verdict after each but the last one."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        task, gym = Task(**state.metadata), opened(options)
        for turn in range(1, turns + 1):
            state = await generate(state)
            judged = await judge_answer(task, state.output.completion, gym.evaluate)
            state.store.set(_JUDGED, judged.result.model_dump_json())
            if turn < turns:
                feedback = format_feedback(judged.result, candidate_class=task.candidate_class)
                state.messages.append(ChatMessageUser(content=feedback))
        return state

    return solve


@scorer(metrics={"correct": [mean(), stderr()], "speedup": [mean(), stderr()], "judged": [mean()]})  # type: ignore[untyped-decorator]
def kernel_score() -> Scorer:
    """Score the last answer: 1 if correct; its speedup, 0 if it has none; and 0 in `judged` if the gym failed."""

    async def score(state: TaskState, target: Target) -> Score:
        result = EvalResult.model_validate_json(state.store.get(_JUDGED))
        attempt = attempt_of(result)
        value = {
            "correct": float(attempt.correct),
            "speedup": attempt.speedup or 0.0,
            "judged": float(not attempt.lost),
        }
        answer = state.output.completion
        return Score(value=value, answer=answer, explanation=_why(result), metadata=result.model_dump(mode="json"))

    return score


def _why(result: EvalResult) -> str:
    return result.status.value if result.error is None else f"{result.status.value}: {result.error.message}"
