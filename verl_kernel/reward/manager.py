# SPDX-License-Identifier: Apache-2.0
"""verl reward manager `kernelgym`: judge a single-turn answer and return its profiling-based reward.

Any recipe can use it by `reward.reward_manager.name=kernelgym`; options are read from an optional `kernelgym:`
node. All samples carry the same `reward_extra_info` keys.
"""

from __future__ import annotations

from typing import Any

from verl import DataProto
from verl.experimental.reward_loop.reward_manager import register
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from verl_kernel.client import connect
from verl_kernel.data.rows import task_from_row
from verl_kernel.env import EvalResult
from verl_kernel.figures.attempts import attempt_of
from verl_kernel.reward.extract import extract_code
from verl_kernel.reward.judging import Judged
from verl_kernel.reward.novelty import read_cold_start
from verl_kernel.reward.options import parse_options
from verl_kernel.reward.own_turns import own_turns
from verl_kernel.reward.rows import UNJUDGED, judge_row
from verl_kernel.verl_keys import find


@register("kernelgym")
class KernelGymRewardManager(RewardManagerBase):  # type: ignore[misc]
    """Judges the last response of a trajectory with the cluster's pool of judges."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any = None, **kwargs: Any) -> None:
        super().__init__(config, tokenizer, compute_score)
        self.options = parse_options(find(config, "kernelgym"))
        self.gym = connect(self.options.env)
        self.cold_start = read_cold_start(self.options.rollout.cold_start)

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Return `reward_score` and `reward_extra_info` for the last row.

        Raises:
            DataError: the row holds no usable reference program.
            InfraError: the answer of a training rollout could not be judged, and no sampler of this package removes it.
        """
        item = data[-1:][0]
        row = item.non_tensor_batch
        task = task_from_row(row)
        answer = await self.loop.run_in_executor(None, self._answer, item, task.candidate_class)
        judged = await judge_row(task, answer, row, self.gym, reward=self.options.reward, config=self.config)
        return {"reward_score": judged.reward, "reward_extra_info": extra_info(judged.result) | self._novelty(judged)}

    def _novelty(self, judged: Judged) -> dict[str, float]:
        """Return the figures of novelty; empty if it is not measured."""
        if self.cold_start is None:
            return {}
        novel, novel_bytes = self.cold_start.novelty(judged.code)
        right = attempt_of(judged.result).correct
        return {"novel": float(novel), "novel_bytes": float(novel_bytes), "novel_acc": float(right and novel)}

    def _answer(self, item: Any, candidate_class: str) -> str:
        """Return the text of the policy's last turn in a row's response that has a program, else of its last turn.

        An agent loop may return several rows for a trajectory. verl then pads prompts, responses and masks to their
        longest row each, so that a mask says nothing of where this row's response ends; its length comes along.
        """
        response = item.batch["responses"]
        if (length := item.non_tensor_batch.get("response_len")) is None:  # rows of a batch of the trainer
            length = item.batch["attention_mask"][-response.shape[-1] :].sum()
        ids = response[: int(length)].tolist()
        mask = item.batch.get("response_mask", None)
        turns = own_turns(self.tokenizer, ids, None if mask is None else mask[: len(ids)].tolist())
        texts = [str(self.tokenizer.decode(turn, skip_special_tokens=True)) for turn in reversed(turns)]
        return next((text for text in texts if extract_code(text, candidate_class)), texts[0])


def extra_info(result: EvalResult) -> dict[str, float]:
    """Return the figures that verl keeps for each sample."""
    attempt = attempt_of(result)
    return {
        "acc": float(attempt.correct),
        "speedup": attempt.speedup or 0.0,
        "time_coverage": attempt.time_coverage or 0.0,
        UNJUDGED: float(attempt.lost),
    }
