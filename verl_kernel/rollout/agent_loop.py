# SPDX-License-Identifier: Apache-2.0
"""verl agent loop `kernel_agent`: a policy writes a kernel, the gym judges it, the policy improves it.

Turn t: generate -> extract code -> evaluate -> reward r_t and feedback_t -> turn t + 1, for a fixed number of
turns (a policy that chose when to stop would bias per-turn baselines). An infra error never becomes a reward: the
trajectory ends at the turn that could not be judged, and is removed from training as a whole (`reward.rows`).

With `kernelgym.context` other than `concat`, which only a validation may use, every turn gets a separate prompt that
shows a few of the earlier turns (`rollout.context`), of at most `data.max_prompt_length` tokens, and its answer is a
row of at most `data.max_response_length`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput
from verl.utils.profiler import simple_timer
from verl.utils.rollout_trace import rollout_trace_op

from verl_kernel.client import Gym, connect
from verl_kernel.data.rows import task_from_row
from verl_kernel.data.temperatures import temperature_of
from verl_kernel.env import EvalResult, GymOptions, Task
from verl_kernel.errors import ConfigError, DataError
from verl_kernel.reward.judging import Judged
from verl_kernel.reward.novelty import read_cold_start
from verl_kernel.reward.options import parse_options
from verl_kernel.reward.record import TurnRecord
from verl_kernel.reward.rows import is_validation, judge_row
from verl_kernel.reward.turn_end import find_turn_end, neutraliser, stop_ids
from verl_kernel.rollout.feedback import feedback_on
from verl_kernel.rollout.trajectory import KernelAgentOutput, RebuiltTrajectory, Trajectory, texts, turn_figures
from verl_kernel.rollout.turn_budget import TurnBudget, Usage
from verl_kernel.verl_keys import find
from verl_kernel.verl_names import append_messages


@functools.lru_cache(maxsize=1)
def gym_handle(options: GymOptions) -> Gym:
    """Return this process's handle on the judges."""
    return connect(options)


def _own_temperature(row: dict[str, Any]) -> dict[str, float]:
    """Return the temperature of a validation row that states one (`data.temperatures`)."""
    temperature = temperature_of(row)
    if temperature is None:
        return {}
    if not is_validation(row):  # the trainer's log-probabilities are those of one temperature
        raise DataError(
            "a row of data.train_files has extra_info.temperature, which only a validation can follow: train on the "
            "file that it was made from"
        )
    return {"temperature": temperature}


class KernelAgentLoop(AgentLoopBase):  # type: ignore[misc]
    """Multi-turn kernel writing against KernelGYM; options under `kernelgym:`.

    Args:
        gym: judges; those of this Ray cluster or of the service that the options name if not given.
    """

    def __init__(self, *args: Any, gym: Gym | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.options = parse_options(find(self.config, "kernelgym"))
        self.gym = gym_handle(self.options.env) if gym is None else gym
        self.cold_start = read_cold_start(self.options.rollout.cold_start)
        self.prompt_length = int(self.rollout_config.prompt_length)
        self.response_length = int(self.rollout_config.response_length)
        self.only_validates = bool(OmegaConf.select(self.config, "trainer.val_only"))
        self.turn_end = find_turn_end(self.tokenizer, self.apply_chat_template_kwargs)
        self.stop_ids = stop_ids(self.tokenizer, self.turn_end, self.options.rollout.stop_token_ids)

    @rollout_trace_op  # type: ignore[untyped-decorator]
    async def run(self, sampling_params: dict[str, Any], **row: Any) -> KernelAgentOutput | list[AgentLoopOutput]:
        """Play all turns of one trajectory.

        Raises:
            InfraError: a turn of a training rollout could not be judged, and no sampler of this package removes it.
            ConfigError: the prompt leaves no token for an answer, or a training row has options that only a validation
                may use.
            DataError: the row holds no usable reference program, or is one of training with a temperature.
        """
        task = task_from_row(row)
        messages = [dict(message) for message in row["raw_prompt"]]
        if not is_validation(row):
            self.options.rollout.refuse_training()
        sampling_params = {**sampling_params, **_own_temperature(row)}
        if self.options.rollout.context == "concat":
            return await self._run_in_one_row(sampling_params, task, messages, row)
        return await self._run_rebuilt(sampling_params, task, messages, row)

    async def _run_in_one_row(
        self, sampling_params: dict[str, Any], task: Task, messages: list[dict[str, Any]], row: dict[str, Any]
    ) -> KernelAgentOutput:
        """Play turns whose prompts show all earlier turns."""
        metrics: dict[str, Any] = {}
        prompt_ids = await self.ct_build_initial_tokens(messages)
        trajectory = self._trajectory(list(prompt_ids))
        request_id = uuid4().hex
        for turn in range(self.options.rollout.max_turns):
            budget = self._budget(trajectory, turn)
            if budget < 1 or self._is_spent(trajectory.turns, metrics):
                break
            limited = {**sampling_params, "max_tokens": budget}
            answer, start = await self._generate(trajectory, request_id, limited, metrics)
            judged = await self._judge(task, answer, row, metrics)
            trajectory.record_turn(start, len(trajectory.mask), judged)
            if judged.lost:
                break
            if turn + 1 < self.options.rollout.max_turns:
                messages = await self._append_feedback(
                    trajectory, messages, answer, self._feedback(task, judged.result)
                )
        if not trajectory.turns:
            raise ConfigError(
                f"data.max_response_length is {self.response_length}, which leaves no token for the first turn: raise "
                "it, or lower kernelgym.max_turns"
            )
        if not is_validation(row):
            return trajectory.output(metrics)
        figures = turn_figures(trajectory.turns, self.options.rollout.max_turns) if self.only_validates else {}
        return trajectory.output(metrics, {**figures, **texts(task, trajectory.turns)})

    async def _run_rebuilt(
        self, sampling_params: dict[str, Any], task: Task, messages: list[dict[str, Any]], row: dict[str, Any]
    ) -> list[AgentLoopOutput]:
        """Play turns that have a separate prompt each."""
        options = self.options.rollout
        metrics: dict[str, Any] = {}
        played = RebuiltTrajectory(task, messages, options.context, options.window)
        token_limit = min(self.response_length, options.turn_tokens or self.response_length)
        limited = {**sampling_params, "max_tokens": token_limit}
        request_id = uuid4().hex
        while not self._is_spent(played.turns, metrics):
            ids, turns_shown = await self._rebuilt_prompt(played)
            own_row = self._trajectory(ids)
            answer, _ = await self._generate(own_row, request_id, limited, metrics)
            judged = await self._judge(task, answer, row, metrics)
            played.record(own_row, turns_shown, judged)
            if judged.lost:
                break
            played.remember(answer, self._feedback(task, judged.result))
        return played.outputs(metrics, options.max_turns)

    def _trajectory(self, prompt_ids: list[int]) -> Trajectory:
        return Trajectory(len(prompt_ids), prompt_ids, self.options.reward.pay_decoys, self.cold_start)

    async def _rebuilt_prompt(self, played: RebuiltTrajectory) -> tuple[list[int], tuple[int, ...]]:
        """Return the next prompt's tokens and the turns it shows; they are chosen again, fewer, if it is too long."""
        build = self.continuous_token_builder.build_initial_tokens
        for window in range(min(self.options.rollout.window, len(played.turns)), 0, -1):
            turns_shown = played.shown(window)
            ids = await self.loop.run_in_executor(None, build, played.prompt(turns_shown))
            if len(ids) <= self.prompt_length:
                return list(ids), turns_shown
        return list(await self.ct_build_initial_tokens(played.prompt(()))), ()

    def _is_spent(self, turns: Sequence[TurnRecord], metrics: dict[str, Any]) -> bool:
        """Whether turns, tokens or seconds forbid a further turn."""
        options = self.options.rollout
        budget = TurnBudget(options.max_turns, options.total_tokens, options.total_seconds)
        seconds = sum(metrics.get(name, 0.0) for name in ("generate_sequences", "tool_calls"))
        return budget.exhausted(Usage(len(turns), sum(turn.tokens for turn in turns), seconds)) is not None

    async def _judge(self, task: Task, answer: str, row: dict[str, Any], metrics: dict[str, Any]) -> Judged:
        with simple_timer("tool_calls", metrics):
            return await judge_row(task, answer, row, self.gym, reward=self.options.reward, config=self.config)

    def _budget(self, trajectory: Trajectory, turn: int) -> int:
        remaining = self.response_length - len(trajectory.mask)
        share = remaining // (self.options.rollout.max_turns - turn)
        return min(remaining, self.options.rollout.turn_tokens or share)

    def _feedback(self, task: Task, result: EvalResult) -> str:
        return feedback_on(task, result, self.options.rollout, neutraliser(self.tokenizer))

    async def _generate(
        self, trajectory: Trajectory, request_id: str, sampling_params: dict[str, Any], metrics: dict[str, Any]
    ) -> tuple[str, int]:
        """Let the policy answer; return the answer's text and its first position in the response."""
        start = len(trajectory.mask)
        stops = {*(sampling_params.get("stop_token_ids") or ()), *self.stop_ids}
        with simple_timer("generate_sequences", metrics):
            output = await self.server_manager.generate(
                request_id=request_id,
                prompt_ids=trajectory.ids,
                sampling_params={**sampling_params, "stop_token_ids": sorted(stops)},
            )
        metrics.setdefault("num_preempted", -1 if output.num_preempted is None else output.num_preempted)
        before = trajectory.logprobs if trajectory.logprobs is not None else []
        merged = await self.ct_merge_assistant_token(
            trajectory.ids,
            output.token_ids,
            trajectory.mask,
            before if output.log_probs else None,
            assistant_logprobs=output.log_probs or None,
        )
        trajectory.take_tokens(*merged)
        self._note_weights(trajectory, output.extra_fields)
        return self.tokenizer.decode(output.token_ids, skip_special_tokens=True), start

    @staticmethod
    def _note_weights(trajectory: Trajectory, extra: dict[str, Any]) -> None:
        """Keep the oldest and the newest version of the weights that generated the trajectory."""
        first = trajectory.extra.get("min_global_steps", extra.get("min_global_steps"))
        trajectory.extra = {**trajectory.extra, **extra, "min_global_steps": first}

    async def _append_feedback(
        self, trajectory: Trajectory, messages: list[dict[str, Any]], answer: str, feedback: str
    ) -> list[dict[str, Any]]:
        trajectory.close_turn(self.turn_end)
        answered = [*messages, {"role": "assistant", "content": answer}]
        extended = [*answered, {"role": "user", "content": feedback}]
        append = append_messages(self)
        merged = await append(answered, extended, trajectory.ids, trajectory.mask, trajectory.logprobs)
        trajectory.take_tokens(*merged)
        return extended
