# SPDX-License-Identifier: Apache-2.0
"""Samples rollouts as a training does, in one process: the recipe's agent loop, a model of transformers, local judges.

Prompts, turns, budgets, feedback, rewards and PRS are those of the composed recipe; neither Ray nor vLLM is started.
Every group is a file of its own that appears when it is complete, so a stopped audit goes on where it was.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf

from recipes.cpu_study.audit.rollouts import Rollout
from verl_kernel.client import on_device, open_gym
from verl_kernel.data.rows import read_rows
from verl_kernel.errors import ConfigError, InfraError
from verl_kernel.files import replacing
from verl_kernel.reward.options import parse_options
from verl_kernel.reward.rows import UNJUDGED
from verl_kernel.sampler.options import PRSOptions
from verl_kernel.sampler.rejection import judge_turns, trajectory_name

if TYPE_CHECKING:
    from verl_kernel.client import Gym

_WITHOUT_EFFECT = ("num_judges", "cpus_per_judge", "gpus_per_judge", "verdict_cache", "cold_start")
"""Keys of `kernelgym` that change no rollout."""
TOGETHER = 8
"""Groups that are played at a time: a small model answers many prompts in hardly more time than one."""


@dataclass(frozen=True)
class GeneratedAnswer:
    """An answer, as verl's server gives it to an agent loop."""

    token_ids: list[int]
    log_probs: None = None
    num_preempted: int | None = None
    extra_fields: dict[str, Any] = field(default_factory=dict)


@dataclass
class BatchedModel:
    """Answers the prompts of agent loops in batches: as soon as each loop that is left waits for an answer."""

    model: Any
    padding: int
    playing: int = 0
    """Loops that have not ended."""
    _waiting: list[tuple[list[int], Mapping[str, Any], asyncio.Future[GeneratedAnswer]]] = field(default_factory=list)

    async def generate(
        self, request_id: str, *, prompt_ids: Sequence[int], sampling_params: Mapping[str, Any], **ignored: Any
    ) -> GeneratedAnswer:
        """Return the answer to a prompt, cut at its stop token or at `max_tokens`."""
        future: asyncio.Future[GeneratedAnswer] = asyncio.get_running_loop().create_future()
        self._waiting.append((list(prompt_ids), sampling_params, future))
        self._answer_if_all_wait()
        return await future

    def end(self) -> None:
        """Note that a loop has ended."""
        self.playing -= 1
        self._answer_if_all_wait()

    def _answer_if_all_wait(self) -> None:
        if not self._waiting or len(self._waiting) < self.playing:
            return
        batch, self._waiting = self._waiting, []
        prompts, params = [prompt for prompt, _, _ in batch], [own for _, own, _ in batch]
        for (_, _, future), tokens in zip(batch, answers(self.model, prompts, params, self.padding), strict=True):
            if not future.done():
                future.set_result(GeneratedAnswer(tokens))


@torch.no_grad()
def answers(
    model: Any, prompts: Sequence[Sequence[int]], params: Sequence[Mapping[str, Any]], padding: int
) -> list[list[int]]:
    """Return the sampled tokens of an answer to each prompt, its stop token included.

    Args:
        model: a causal language model of Hugging Face.
        prompts: token ids of each prompt.
        params: `max_tokens`, `stop_token_ids` and `temperature` of each prompt; the last is that of all.
        padding: token id that fills shorter prompts up.
    """
    width, stops = max(map(len, prompts)), sorted({stop for own in params for stop in own["stop_token_ids"]})
    ids = torch.tensor([[padding] * (width - len(prompt)) + list(prompt) for prompt in prompts])
    seen = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    generated = model.generate(
        ids, attention_mask=seen, max_new_tokens=max(own["max_tokens"] for own in params), eos_token_id=stops,
        pad_token_id=padding, do_sample=True, temperature=params[0]["temperature"], top_p=1.0, top_k=0,
    )  # fmt: skip
    return [_until(row[width:].tolist(), own) for row, own in zip(generated, params, strict=True)]


def _until(tokens: list[int], params: Mapping[str, Any]) -> list[int]:
    stops = set(params["stop_token_ids"])
    end = next((position + 1 for position, token in enumerate(tokens) if token in stops), len(tokens))
    return tokens[: min(end, params["max_tokens"])]


@dataclass(frozen=True)
class SamplingPlan:
    """Which groups are sampled, and where they are kept."""

    config: DictConfig
    """The composed recipe."""
    data: Path
    """Parquet file of the tasks."""
    groups: int
    seed: int
    folder: Path

    def tasks(self) -> list[dict[str, Any]]:
        """Return the rows of as many tasks as there are groups, drawn by the seed.

        Raises:
            DataError: the file cannot be read.
            ConfigError: it has fewer tasks.
        """
        rows = list(read_rows(self.data))
        if len(rows) < self.groups:
            raise ConfigError(f"--groups is {self.groups}, but {self.data} has {len(rows)} tasks: ask for fewer groups")
        order = np.random.default_rng(self.seed).permutation(len(rows))
        return [rows[number] for number in order[: self.groups]]

    @property
    def fingerprint(self) -> str:
        """Return a hash of all that decides about a rollout."""
        rollout = self.config.actor_rollout_ref.rollout
        deciding = [
            {key: value for key, value in _plain(self.config.kernelgym).items() if key not in _WITHOUT_EFFECT},
            {key: rollout[key] for key in ("n", "temperature", "prompt_length", "response_length")},
            _plain(self.config.trainer.v1.sampler.sampler_kwargs),
            self.seed,
        ]
        content = json.dumps(deciding, sort_keys=True).encode() + self.data.read_bytes()
        weights = sorted(Path(self.config.actor_rollout_ref.model.path).glob("*.safetensors"))
        return hashlib.sha256(b"".join([content, *(path.read_bytes() for path in weights)])).hexdigest()


def _plain(node: DictConfig) -> dict[str, Any]:
    return dict(OmegaConf.to_container(node, resolve=True))


def sample(plan: SamplingPlan, model: Any, tokenizer: Any, note: Callable[[str], None]) -> None:
    """Sample and judge the groups that are missing.

    Args:
        plan: the groups.
        model: the policy.
        tokenizer: its tokenizer.
        note: called with a sentence after each batch of groups.

    Raises:
        ConfigError: the folder holds rollouts of another model or of other options.
        InfraError: the gym could judge none of a group's trajectories.
    """
    plan.folder.mkdir(parents=True, exist_ok=True)
    mark = plan.folder / "fingerprint"
    if mark.exists() and mark.read_text() != plan.fingerprint:
        raise ConfigError(
            f"{plan.folder} holds rollouts of another model, of other tasks or of other options: name another folder "
            "with --out, or delete it"
        )
    mark.write_text(plan.fingerprint)
    missing = [(number, row) for number, row in enumerate(plan.tasks()) if not _path(plan, number).exists()]
    if not missing:
        return
    options = parse_options(_plain(plan.config.kernelgym))
    with open_gym(on_device(options.env), plan.seed) as gym:
        for start in range(0, len(missing), TOGETHER):
            part = missing[start : start + TOGETHER]
            torch.manual_seed(plan.seed * 1_000_003 + part[0][0])
            asyncio.run(_play(plan, part, model, tokenizer, gym))
            note(f"{plan.groups - len(missing) + start + len(part)} of {plan.groups} groups sampled and judged")


def _path(plan: SamplingPlan, number: int) -> Path:
    return plan.folder / f"{number}.jsonl"


async def _play(
    plan: SamplingPlan, part: Sequence[tuple[int, Mapping[str, Any]]], model: Any, tokenizer: Any, gym: Gym
) -> None:
    """Play the groups of some tasks at once, and write each to its file."""
    each = int(plan.config.actor_rollout_ref.rollout.n)
    padding = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    policy = BatchedModel(model, padding, playing=len(part) * each)
    outputs = await asyncio.gather(
        *(_rollout(plan.config, row, policy, tokenizer, gym) for _, row in part for _ in range(each))
    )
    prs = PRSOptions.from_node(plan.config.trainer.v1.sampler.sampler_kwargs)
    for at, (number, row) in enumerate(part):
        own = [_record(output, session, number, prs) for session, output in enumerate(outputs[at * each :][:each])]
        lines = [rollout.line(f"{number}_{session}_0") for session, rollout in enumerate(own) if rollout is not None]
        if not lines:
            raise InfraError(f"the gym could judge no answer to task {row['extra_info']['task_id']}: see its log")
        with replacing(_path(plan, number)) as path:
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))


async def _rollout(config: DictConfig, row: Mapping[str, Any], policy: BatchedModel, tokenizer: Any, gym: Gym) -> Any:
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap

    from verl_kernel.rollout.agent_loop import KernelAgentLoop

    loop = KernelAgentLoop(
        trainer_config=DictConfigWrap(config), server_manager=policy, tokenizer=tokenizer, processor=None,
        dataset_cls=None, data_config=DictConfigWrap(config.data), hf_model_type=policy.model.config.model_type,
        gym=gym,
    )  # fmt: skip
    params = {"temperature": float(config.actor_rollout_ref.rollout.temperature)}
    output = await loop.run(params, raw_prompt=list(row["prompt"]), **row)
    policy.end()  # not after an error, which ends all the others
    return output


def _record(output: Any, session: int, number: int, prs: PRSOptions) -> Rollout | None:
    """Return what a file keeps of a trajectory; None where the gym could not judge it."""
    if output.extra_fields["reward_extra_info"][UNJUDGED]:
        return None
    name = trajectory_name(np.asarray(output.prompt_ids, dtype=np.int64).tobytes(), f"{session}_0")
    judged = judge_turns(name, output.turns, number, prs) if prs.enabled else None
    kept = tuple(judged is None or judged[turn].is_kept for turn in range(len(output.turns)))
    tokens = (tuple(output.prompt_ids), tuple(output.response_ids), tuple(output.response_mask))
    return Rollout(*tokens, tuple(output.turns), kept)
