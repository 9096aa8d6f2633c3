# SPDX-License-Identifier: Apache-2.0
"""Checks that the tasks fill a batch, that lengths leave room for answers, and that a described GPU holds the model.

verl notices each of them after Ray, the model and vLLM have started, by an exception that names none of the keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from omegaconf import DictConfig

from verl_kernel.data.files import reading
from verl_kernel.errors import ConfigError, DataError
from verl_kernel.preflight.hardware import Machine
from verl_kernel.reward.options import parse_options
from verl_kernel.verl_keys import find, read

BATCH, CHUNK = "data.train_batch_size", "data.gen_batch_size"
PROMPT, RESPONSE = "data.max_prompt_length", "data.max_response_length"
LONGEST = "actor_rollout_ref.rollout.max_model_len"
TURN_TOKENS = 64
"""Fewer tokens hold no program: two imports, a kernel that loads and stores, and a class that launches it."""
_MOST_PROMPTS = 2000
"""Prompts whose tokens are counted at most: the first of a large file tell enough, and a start should not wait."""


def check_batch(config: DictConfig) -> None:
    """Check that the training files hold a batch: verl drops the rest of an epoch, and divides by its steps.

    Raises:
        DataError: they hold fewer tasks.
    """
    if (needed := _needed(config)) and (files := _files(config, "train")):
        there = 0
        for path in files:
            with reading(Path(path)):
                there += pq.read_metadata(path).num_rows
        there = _sampled(config, "train", there)
        if there < needed:
            raise DataError(
                f"data.train_files: there are {there} tasks to train on in {' and '.join(files)} and a batch needs "
                f"{needed} ({BATCH}, {CHUNK}), so that no step could be made: add tasks, or set {BATCH} and "
                f"actor_rollout_ref.actor.ppo_mini_batch_size to at most {there}"
            )


def check_prompts(config: DictConfig) -> None:
    """Check that enough prompts are short enough, where verl leaves out longer ones and the tokenizer is here.

    Raises:
        DataError: too few are left for a batch, or none for a validation.
    """
    if not read(config, "data.filter_overlong_prompts"):
        return
    from verl_kernel.rollout.preflight import TEMPLATE_OPTIONS, tokenizer_of

    if (tokenizer := tokenizer_of(config)) is None or not tokenizer.chat_template:
        return
    limit, template = read(config, PROMPT), find(config, TEMPLATE_OPTIONS) or {}
    for split, needed in (("train", _needed(config)), ("val", 1)):
        prompts = [
            row["prompt"]
            for path in _files(config, split)
            for row in pq.read_table(path, columns=["prompt"]).to_pylist()
        ]
        short = 0
        for prompt in prompts[:_MOST_PROMPTS]:
            if short >= needed:
                break
            short += _tokens(tokenizer, prompt, template) <= limit
        if short < needed and len(prompts) <= _MOST_PROMPTS:
            raise DataError(
                f"data.{split}_files: {short} of {len(prompts)} prompts have at most {limit} tokens ({PROMPT}), the "
                f"others are left out (data.filter_overlong_prompts), and {needed} are needed: raise {PROMPT}"
            )


def _tokens(tokenizer: Any, prompt: list[dict[str, str]], template: Mapping[str, Any]) -> int:
    text = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False, **template)
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])


def check_lengths(config: DictConfig) -> None:
    """Check that a turn has tokens enough for a program, and that vLLM takes the longest row.

    Raises:
        ConfigError: it does not; every answer would be cut, or a long prompt would end the run.
    """
    options = parse_options(find(config, "kernelgym")).rollout
    prompt, response, longest = (read(config, key) for key in (PROMPT, RESPONSE, LONGEST))
    turns = options.max_turns if options.context == "concat" else 1
    room = min(response, options.turn_tokens or response // turns)
    if room < TURN_TOKENS:
        raise ConfigError(
            f"{RESPONSE} is {response}, kernelgym.max_turns {options.max_turns} and kernelgym.turn_tokens "
            f"{options.turn_tokens or 'null'}: a turn has {room} tokens, in which no program fits; give it "
            f"{TURN_TOKENS} or more"
        )
    if options.context == "concat" and longest is not None and longest < prompt + response:
        raise ConfigError(
            f"{LONGEST} is {longest}, less than the longest row, {prompt} + {response} ({PROMPT}, {RESPONSE}): set it "
            f"to {prompt + response} or more"
        )


def check_memory(config: DictConfig, machine: Machine) -> Iterator[str]:
    """Yield a trainer's memory where, by the model of `verl-kernel plan`, a GPU does not hold it.

    Raises:
        ConfigError: vLLM's share of a GPU does not even hold the model's weights.
    """
    if machine.gpu_mb is None or find(config, "actor_rollout_ref.model.lora_rank"):
        return
    from verl_kernel.preflight import step_plan

    try:
        shape = step_plan.shape_of(config)
    except ConfigError:  # the model is neither here nor known
        return
    gpu_gb = machine.gpu_mb / 1e3
    memory = step_plan.memory_of(step_plan.split_of(config), shape, gpu_gb)
    trained = sum(gigabytes for part, gigabytes in memory.items() if not part.startswith("vLLM"))
    if trained > gpu_gb:
        yield (
            f"whether {machine} holds the training: by the model of `verl-kernel plan`, a trainer's GPU needs "
            f"{trained:.0f} GB of {gpu_gb:g}"
        )


def _needed(config: DictConfig) -> int:
    """Return how many tasks a batch takes; 0 where nothing is trained."""
    if read(config, "trainer.val_only") and read(config, "trainer.val_before_train"):
        return 0
    # Other modes, and samplers that refill, fetch prompts one by one.
    chunk = read(config, CHUNK) if read(config, "trainer.v1.trainer_mode") == "sync" else None
    return max(int(read(config, BATCH)), int(chunk or 1))


def _sampled(config: DictConfig, split: str, there: int) -> int:
    most = find(config, f"data.{split}_max_samples")
    return min(there, most) if isinstance(most, int) and most > 0 else there


def _files(config: DictConfig, split: str) -> list[str]:
    """Return the files of a split; none if one of them is elsewhere."""
    files = read(config, f"data.{split}_files") or []
    paths = [files] if isinstance(files, str) else [*files]
    return [] if any("://" in path for path in paths) else [str(Path(path).expanduser()) for path in paths]
