# SPDX-License-Identifier: Apache-2.0
"""verl's agent loop worker, which draws the rollouts of a prompt in rounds (Reinforce-Ada-Seq, arXiv 2510.04996).

Each prompt has separate rounds: an easy prompt is ready for training while a hard one still draws. Rollouts are held
back until the rounds end; then `rollout.n` of them are written to TransferQueue, as verl writes them, and the prompt's
tag gets the statistics of the whole pool. A trajectory is one draw, however many turns it has. A draw that could not be
judged is no member of the pool; it is written only if there are too few judged ones, so that the sampler sees and
counts it. Validation runs as in verl.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass, field, replace
from typing import Any

import transfer_queue as tq
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

from verl_kernel.adaptive import AdaOptions, Pool, PoolStatistics
from verl_kernel.adaptive.pool import TAG
from verl_kernel.reward.record import TurnRecord, judging_cost
from verl_kernel.reward.rows import UNJUDGED
from verl_kernel.rollout.trajectory import KernelAgentOutput

logger = logging.getLogger(__name__)
# Ray forbids inheritance from an actor's class, but allows it from the class behind the actor.
_Worker: Any = AgentLoopWorkerTQ.__ray_metadata__.modified_class


@dataclass
class Draw:
    """A finished rollout that is not written yet."""

    outputs: list[AgentLoopOutput]
    fields: dict[str, Any]
    """The row that it was played for, with its session."""

    @property
    def info(self) -> dict[str, float]:
        """Return verl's `reward_extra_info` of the rollout."""
        return dict(self.outputs[-1].extra_fields.get("reward_extra_info") or {})

    @property
    def turns(self) -> tuple[TurnRecord, ...]:
        """Return its turns; none if another agent loop played it."""
        last = self.outputs[-1]
        return last.turns if isinstance(last, KernelAgentOutput) else ()

    @property
    def rewards(self) -> list[float]:
        """Return the rewards of its turns."""
        return [turn.reward for turn in self.turns] or [float(self.outputs[-1].reward_score)]


@dataclass
class PromptRounds:
    """The rounds of one prompt."""

    pool: Pool
    finished: list[Draw] = field(default_factory=list)
    """The finished draws of the current round."""
    members: list[Draw] = field(default_factory=list)
    """The draws of the pool, in the pool's order."""
    unjudged: list[Draw] = field(default_factory=list)

    def close_round(self, options: AdaOptions) -> None:
        """Sort the draws of the round into the pool, by session."""
        self.finished.sort(key=lambda draw: int(draw.fields["session_id"]))
        judged = [draw for draw in self.finished if not draw.info.get(UNJUDGED)]
        self.unjudged += [draw for draw in self.finished if draw.info.get(UNJUDGED)]
        self.members += judged
        self.pool.add([draw.rewards for draw in judged], [options.is_positive(draw.info) for draw in judged])
        self.finished = []

    def chosen(self, n: int, rng: random.Random) -> list[Draw]:
        """Return the draws to write: `n` of the pool, filled up with unjudged ones."""
        pool_draws = [self.members[i] for i in self.pool.select(n, rng)]
        return pool_draws + self.unjudged[: n - len(pool_draws)]

    def statistics(self) -> PoolStatistics:
        """Return the statistics of the pool, with its cost."""
        turns = [turn for draw in self.members + self.unjudged for turn in draw.turns]
        calls, seconds = judging_cost(turns)
        return replace(self.pool.statistics(), judge_calls=calls, judge_seconds=seconds)


class AdaptiveWorker(_Worker):  # type: ignore[misc]
    """Draws rollouts of a training prompt until the exit rule of `algorithm.ada` is satisfied."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.open_rounds: dict[str, PromptRounds] = {}

    async def _run_prompt(
        self, prompt: dict[str, Any], sampling_params: dict[str, Any], trajectory: dict[str, Any], trace: bool = False
    ) -> None:
        """Play a prompt: in validation as verl does, in training in rounds."""
        if trajectory["validate"]:
            await super()._run_prompt(prompt, sampling_params, trajectory=trajectory, trace=trace)
            return
        uid = prompt["uid"]
        await tq.async_kv_put(key=uid, partition_id="train", tag={"status": "running"})
        try:
            tag = await self._draw_rounds(uid, prompt, sampling_params, trajectory, trace)
        except Exception:
            # As in verl: nothing may wait for a prompt that has failed for any reason.
            logger.exception("the rounds of prompt %s failed", uid)
            tag = {"status": "failure"}
        finally:
            self.open_rounds.pop(uid, None)
        await tq.async_kv_put(key=uid, partition_id="train", tag=tag)

    async def _draw_rounds(
        self,
        uid: str,
        prompt: dict[str, Any],
        sampling_params: dict[str, Any],
        trajectory: dict[str, Any],
        trace: bool,
    ) -> dict[str, Any]:
        """Draw, choose and write the rollouts of a prompt; return its last tag."""
        options = AdaOptions.from_node(self.config.algorithm.get("ada", None))
        row = {key: value for key, value in prompt.items() if not key.startswith("__")}
        n = int(prompt.get("__rollout_n__", self.config.actor_rollout_ref.rollout.n))
        rounds = self.open_rounds[uid] = PromptRounds(Pool(options.exit_rule(n)))
        while count := rounds.pool.next_round():
            sessions = range(rounds.pool.draws - count, rounds.pool.draws)
            await self._play_round(row, sampling_params, trajectory, trace, sessions)
            rounds.close_round(options)
        del self.open_rounds[uid]  # From here on, `_agent_loop_postprocess` writes.
        rng = random.Random(f"{options.seed}/{trajectory['step']}/{trajectory['sample_index']}")
        chosen = rounds.chosen(n, rng)
        for session, draw in enumerate(chosen):
            fields = {**draw.fields, "session_id": session}
            await super()._agent_loop_postprocess(draw.outputs, False, **fields)
        status = "finished" if len(chosen) == n else "failure"
        return {"status": status, TAG: rounds.statistics().tag()}

    async def _play_round(
        self,
        row: dict[str, Any],
        sampling_params: dict[str, Any],
        trajectory: dict[str, Any],
        trace: bool,
        sessions: range,
    ) -> None:
        """Play one rollout per session, all at once; failed ones are logged, as verl does."""
        played = [
            self._run_agent_loop(dict(sampling_params), trajectory=trajectory, trace=trace, session_id=session, **row)
            for session in sessions
        ]
        for error in await asyncio.gather(*played, return_exceptions=True):
            if isinstance(error, BaseException):
                logger.error("a rollout of prompt %s failed", row["uid"], exc_info=error)

    async def _agent_loop_postprocess(
        self, output: AgentLoopOutput | list[AgentLoopOutput], validate: bool, **kwargs: Any
    ) -> None:
        """Score a rollout, and hold it back while its prompt draws; all other rollouts are handled as in verl."""
        rounds = None if validate else self.open_rounds.get(kwargs["uid"])
        if rounds is None:
            await super()._agent_loop_postprocess(output, validate, **kwargs)
            return
        outputs = output if isinstance(output, list) else [output]
        if outputs:
            await self._compute_score(outputs, kwargs=kwargs)
            rounds.finished.append(Draw(outputs, kwargs))
