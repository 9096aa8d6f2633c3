# SPDX-License-Identifier: Apache-2.0
"""Plays trajectories: ask, extract the program, have it judged, store the answer, ask again.

Prompts, extraction, judging, feedback and rewards are those of the agent loop (`rollout`, `reward`), so a bench and a
trainer's validation report the same on the same answers if their options of the gym (a bench uses `gym=strict`) and of
the reward agree. A trajectory ends when its turns or its budget are used up, when a prompt is too long, or at a turn
that the gym could not judge. Generation and judging overlap, and both are bounded.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from verl_kernel.bench.models.answers import LanguageModel, ModelAnswer, Question, no_endpoint
from verl_kernel.bench.records import BenchTurn, Failure
from verl_kernel.bench.request import BenchOptions
from verl_kernel.bench.store import Store, as_written
from verl_kernel.bench.suites import SuiteItem
from verl_kernel.env import EvalError, EvalResult, EvalStatus, Task
from verl_kernel.errors import TaskError
from verl_kernel.reward.extract import extract_code
from verl_kernel.reward.judging import Judged, judge_program
from verl_kernel.reward.profiling import ProfilingReward
from verl_kernel.rollout.context import PastTurn, rebuilt_messages, shown_turns
from verl_kernel.rollout.feedback import feedback_on
from verl_kernel.rollout.turn_budget import TurnBudget, Usage

_LEAST = 3
"""Number of questions after which an endpoint is given up; each of them is asked three times."""
History = list[BenchTurn]
_WAITING = 2
"""Extra trajectories in progress per judge, beyond those at the model, so that no judge waits for an answer."""
Job = tuple[SuiteItem, int]
"""A task and the number of a sample."""


class FirstAnswers:
    """Stores turns; malformed ones only after the endpoint has given a well-formed answer.

    A malformed answer among others is data: the model had its turn. If a session has brought malformed answers only,
    the endpoint does not speak the chat protocol (a wrong path, a login page), and a run full of failures would hide
    that.

    Args:
        store: the run's folder.
        requests: requests in flight at a time; the endpoint gets at least as many questions before it is given up.
    """

    def __init__(self, store: Store, requests: int) -> None:
        self._store, self._enough = store, max(_LEAST, requests)
        self._held_back: list[BenchTurn] = []
        self._malformed: list[ModelAnswer] = []
        self._is_proven = False

    def heard(self, answer: ModelAnswer) -> None:
        """Note the answer to a question.

        Raises:
            EndpointError: enough answers arrived, and all of them are malformed.
        """
        if answer.failure != "malformed":
            self._accept_endpoint()
        elif not self._is_proven:
            self._malformed.append(answer)
            if len(self._malformed) >= self._enough:
                raise no_endpoint(answer, len(self._malformed))

    def append(self, turn: BenchTurn) -> BenchTurn:
        """Store a turn, or hold it back; return it as a reader of the file will see it.

        Raises:
            StorageError: the disk is full.
        """
        if turn.failure == "malformed" and not self._is_proven:
            self._held_back.append(turn)
            return as_written(turn)
        return self._store.append(turn)

    def settle(self) -> None:
        """End the session: if it brought malformed answers only, an earlier session decides whether they are data.

        Raises:
            EndpointError: no session has brought a well-formed answer.
        """
        if self._malformed and not self._is_proven and not self._store.has_answers:
            raise no_endpoint(self._malformed[-1], len(self._malformed))
        self._accept_endpoint()

    def _accept_endpoint(self) -> None:
        self._is_proven = True
        while self._held_back:
            self._store.append(self._held_back.pop(0))


class Judges(Protocol):
    """A pool of judges, such as `LocalPool`."""

    async def evaluate(self, task: Task, source: str) -> EvalResult:
        """Judge one candidate."""
        ...


class Progress(Protocol):
    """A receiver of a run's progress."""

    def note(self, is_correct: bool) -> None:
        """Count one more stored answer."""
        ...

    def shorten(self, turns: int) -> None:
        """Note that a trajectory has ended `turns` turns early."""
        ...


@dataclass
class Trajectories:
    """Plays trajectories; holds what all of them share."""

    model: LanguageModel
    judges: Judges
    store: Store
    options: BenchOptions
    requests: asyncio.Semaphore
    """Limits the requests in flight at the model."""
    judging: asyncio.Semaphore
    """Limits the candidates that are with the judges."""
    progress: Progress
    first_answers: FirstAnswers
    reward: ProfilingReward | None = None
    """Computes the reward of a verdict; None for the default reward."""
    _unfit: dict[str, EvalResult] = field(default_factory=dict)
    """Tasks that cannot be judged, about which the model is not asked again."""

    async def play(self, item: SuiteItem, sample: int) -> None:
        """Play a trajectory from its stored state to its end."""
        history, lost = self.store.history((item, sample)), self.store.lost.get((item.task.task_id, sample))
        while goes_on(history, self.options):
            turn = await self._turn(item, sample, history, lost)
            history.append(self.first_answers.append(turn))
            self.progress.note(turn.result.rewarded)
            lost = None
        self.progress.shorten(self.options.turns - len(history))

    async def _turn(self, item: SuiteItem, sample: int, history: History, lost: BenchTurn | None) -> BenchTurn:
        """Play the next turn; an answer that the gym failed to judge is judged again."""
        turns_shown: tuple[int, ...] = ()
        if (unfit := self._unfit.get(item.task.task_id)) is not None:
            answer, generate_s = ModelAnswer(verdict=unfit), 0.0
        elif lost is not None and (lost.completion is not None or lost.code is not None):
            answer, turns_shown, generate_s = _earlier_answer(lost), lost.shown, lost.generate_s
        else:
            answer, turns_shown, generate_s = await self._ask(item, sample, history)
        started = time.perf_counter()
        judged, failure = await self._judge_answer(item.task, answer)
        return BenchTurn(
            task_id=item.task.task_id,
            task_hash=item.task.text_hash,
            sample=sample,
            turn=len(history) + 1,
            result=judged.result,
            reward=judged.reward,
            code=judged.code,
            completion=answer.text,
            failure=failure,
            shown=turns_shown,
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=answer.completion_tokens,
            generate_s=generate_s,
            judge_s=time.perf_counter() - started,
            level=item.level,
            family=item.family,
        )

    async def _ask(self, item: SuiteItem, sample: int, history: History) -> tuple[ModelAnswer, tuple[int, ...], float]:
        """Ask the model; if the prompt is too long for the whole window, show fewer earlier turns."""
        rewards, window = [turn.reward for turn in history], self.options.window
        past = [self._past_turn(item.task, turn) for turn in history]
        while True:
            turns_shown = shown_turns(rewards, self.options.context, window)
            messages = rebuilt_messages(item.messages, past, turns_shown)
            async with self.requests:
                started = time.perf_counter()
                question = Question(item, sample, len(history) + 1, messages, self._seed(item.task, sample, history))
                answer = await self.model.answer(question)
            self.first_answers.heard(answer)
            if answer.failure != "context_overflow" or self.options.context == "concat" or not turns_shown:
                return answer, turns_shown, time.perf_counter() - started
            window = len(turns_shown) - 1

    async def _judge_answer(self, task: Task, answer: ModelAnswer) -> tuple[Judged, Failure | None]:
        """Judge the program of an answer; also return why there is no program, if so."""
        if answer.verdict is not None:
            return Judged.of(None, answer.verdict, self.reward), None
        code = answer.code or extract_code(answer.text or "", task.candidate_class)
        judged = await judge_program(task, code, self._evaluate, self.reward)
        if code is not None:
            return judged, None
        return judged, answer.failure or ("too_long" if answer.is_cut else "no_code")

    async def _evaluate(self, task: Task, code: str) -> EvalResult:
        """Return the verdict on a program; remember a task that cannot be judged."""
        async with self.judging:
            try:
                return await self.judges.evaluate(task, code)
            except TaskError as exc:
                self._unfit[task.task_id] = unfit_task(task, exc)
                return self._unfit[task.task_id]

    def _past_turn(self, task: Task, turn: BenchTurn) -> PastTurn:
        feedback = feedback_on(task, turn.result, self.options, self.model.clean)
        return PastTurn(turn.completion or "", feedback, turn.reward)

    def _seed(self, task: Task, sample: int, history: Sequence[BenchTurn]) -> int:
        text = f"{self.options.seed}\0{task.fingerprint}\0{sample}\0{len(history) + 1}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def goes_on(history: Sequence[BenchTurn], options: BenchOptions) -> bool:
    """Whether a trajectory has a further turn."""
    if history and (history[-1].failure == "context_overflow" or is_lost(history[-1])):
        return False
    usage = Usage()
    for turn in history:
        tokens = (turn.prompt_tokens or 0) + (turn.completion_tokens or 0)
        usage = usage.plus(tokens, turn.generate_s + turn.judge_s)
    return TurnBudget(options.turns, options.total_tokens, options.total_seconds).exhausted(usage) is None


def is_lost(turn: BenchTurn) -> bool:
    """Whether the gym failed to judge a turn."""
    return turn.result.status is EvalStatus.INFRA_ERROR


def unfit_task(task: Task, exc: TaskError) -> EvalResult:
    """Return the verdict for a candidate whose task cannot be judged; the candidate is not to blame."""
    error = EvalError(stage="reference", type="TaskError", message=str(exc)[:2000])
    return EvalResult(task_id=task.task_id, task_hash=task.text_hash, status=EvalStatus.INFRA_ERROR, error=error)


def _earlier_answer(turn: BenchTurn) -> ModelAnswer:
    return ModelAnswer(
        text=turn.completion,
        code=None if turn.completion is not None else turn.code,
        prompt_tokens=turn.prompt_tokens,
        completion_tokens=turn.completion_tokens,
    )


async def play_all(
    jobs: Sequence[Job],
    model: LanguageModel,
    judges: Judges,
    store: Store,
    *,
    options: BenchOptions,
    num_judges: int,
    progress: Progress,
    reward: ProfilingReward | None = None,
) -> None:
    """Play all trajectories to their ends; the first error ends the run, and the stored answers stay.

    Raises:
        VerlKernelError: any of its subclasses, e.g. EndpointError if every answer is malformed.
    """
    slots = asyncio.Semaphore(options.requests + _WAITING * num_judges)
    requests, judging = asyncio.Semaphore(options.requests), asyncio.Semaphore(num_judges)
    first_answers = FirstAnswers(store, options.requests)
    trajectories = Trajectories(model, judges, store, options, requests, judging, progress, first_answers, reward)

    async def play(job: Job) -> None:
        async with slots:
            await trajectories.play(*job)

    tasks = [asyncio.create_task(play(job)) for job in jobs]
    try:
        finished, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in finished:
            task.result()
        first_answers.settle()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
