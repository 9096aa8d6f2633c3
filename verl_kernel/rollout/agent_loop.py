# SPDX-License-Identifier: Apache-2.0
"""verl agent loop `kernel_agent`: a policy writes a kernel, the gym judges it, the policy improves it.

Turn t: generate -> extract code -> evaluate -> reward r_t and feedback_t -> turn t + 1, for a fixed number of
turns (a policy that chose when to stop would bias per-turn baselines). An infra error is never a reward: the
trajectory ends at the turn that could not be judged, and leaves training as a whole (`reward.unjudged`).
"""

from __future__ import annotations

import functools
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase
from verl.utils.profiler import simple_timer
from verl.utils.rollout_trace import rollout_trace_op

from verl_kernel.data.rows import task_from_row
from verl_kernel.env import EvalResult, EvalStatus, GymOptions, KernelGym, Task
from verl_kernel.errors import ConfigError
from verl_kernel.reward.extract import extract_code, no_program
from verl_kernel.reward.options import parse_options
from verl_kernel.reward.profiling import profiling_reward
from verl_kernel.reward.unjudged import is_validation, note_loss, step_of
from verl_kernel.rollout.feedback import format_feedback
from verl_kernel.rollout.special_tokens import neutraliser
from verl_kernel.rollout.trajectory import KernelAgentOutput, Trajectory
from verl_kernel.rollout.turn_end import find_turn_end, stop_ids


@functools.lru_cache(maxsize=1)
def gym_handle(options: GymOptions) -> KernelGym:
    """Return this process's handle on the cluster's pool of judges."""
    return KernelGym.connect(options)


class KernelAgentLoop(AgentLoopBase):  # type: ignore[misc]
    """Multi-turn kernel writing against KernelGYM; options under `kernelgym:`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.options = parse_options(self.config.get("kernelgym"))
        self.gym = gym_handle(self.options.env)
        self.response_length = int(self.rollout_config.response_length)
        self.turn_end = find_turn_end(self.tokenizer, self.apply_chat_template_kwargs)
        self.stop_ids = stop_ids(self.tokenizer, self.turn_end, self.options.rollout.stop_token_ids)

    @rollout_trace_op  # type: ignore[untyped-decorator]
    async def run(self, sampling_params: dict[str, Any], **row: Any) -> KernelAgentOutput:
        """Play all turns of one trajectory.

        Raises:
            InfraError: a turn of a training rollout could not be judged, and no sampler of ours takes it out.
            ConfigError: there is no room for a token.
            DataError: the row holds no usable reference program.
        """
        task = task_from_row(row)
        messages = [dict(message) for message in row["raw_prompt"]]
        metrics: dict[str, Any] = {}
        prompt_ids = await self.ct_build_initial_tokens(messages)
        trajectory = Trajectory(prompt_length=len(prompt_ids), ids=list(prompt_ids))
        request_id = uuid4().hex
        for turn in range(self.options.rollout.max_turns):
            budget = self._budget(trajectory, turn)
            if budget < 1:
                break
            limited = {**sampling_params, "max_tokens": budget}
            answer, start = await self._generate(trajectory, request_id, limited, metrics)
            with simple_timer("tool_calls", metrics):
                code, result = await self._judge(task, answer, row)
            lost = result.status is EvalStatus.INFRA_ERROR
            reward = 0.0 if lost else profiling_reward(result, self.options.reward)
            trajectory.record_turn(start, len(trajectory.mask), reward, result, code)
            if lost:
                note_loss(result, row, self.config)
                break
            if turn + 1 < self.options.rollout.max_turns:
                messages = await self._append_feedback(trajectory, messages, answer, self._feedback(task, result))
        if not trajectory.turns:
            raise ConfigError(
                f"data.max_response_length is {self.response_length}, which leaves no token for the first turn: raise "
                "it, or lower kernelgym.max_turns"
            )
        return trajectory.output(metrics)

    async def _judge(self, task: Task, answer: str, row: dict[str, Any]) -> tuple[str | None, EvalResult]:
        """The program of an answer, None where it holds none, and its verdict."""
        code = extract_code(answer, task.candidate_class)
        if code is None:
            return None, no_program(task)
        return code, await self.gym.evaluate(task, code, validate=is_validation(row), step=step_of(row))

    def _budget(self, trajectory: Trajectory, turn: int) -> int:
        left = self.response_length - len(trajectory.mask)
        share = left // (self.options.rollout.max_turns - turn)
        return min(left, self.options.rollout.turn_tokens or share)

    def _feedback(self, task: Task, result: EvalResult) -> str:
        options, clean = self.options.rollout, neutraliser(self.tokenizer)
        return format_feedback(
            result, options.feedback_chars, candidate_class=task.candidate_class, form=options.feedback, clean=clean
        )

    async def _generate(
        self, trajectory: Trajectory, request_id: str, sampling_params: dict[str, Any], metrics: dict[str, Any]
    ) -> tuple[str, int]:
        """Let the policy answer; returns the answer's text and its first position in the response."""
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
        """Keep the oldest and the newest weight version the trajectory was generated with."""
        first = trajectory.extra.get("min_global_steps", extra.get("min_global_steps"))
        trajectory.extra = {**trajectory.extra, **extra, "min_global_steps": first}

    async def _append_feedback(
        self, trajectory: Trajectory, messages: list[dict[str, Any]], answer: str, feedback: str
    ) -> list[dict[str, Any]]:
        trajectory.close_turn(self.turn_end)
        answered = [*messages, {"role": "assistant", "content": answer}]
        extended = [*answered, {"role": "user", "content": feedback}]
        merged = await self.ct_merge_context_msg(
            answered, extended, trajectory.ids, trajectory.mask, trajectory.logprobs
        )
        trajectory.take_tokens(*merged)
        return extended
