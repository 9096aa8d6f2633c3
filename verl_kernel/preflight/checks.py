# SPDX-License-Identifier: Apache-2.0
"""Checks a composed configuration, its data and its model, before Ray, a model or a server starts."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from verl_kernel.adaptive import AdaOptions
from verl_kernel.adaptive.options import NODE as ADA
from verl_kernel.env import EvalResult, EvalStatus
from verl_kernel.errors import ConfigError, DataError
from verl_kernel.preflight.attention import check_shards
from verl_kernel.preflight.combinations import check_combination
from verl_kernel.preflight.names import LOOP, NAMES, agent_loops, check_names, check_registries, unknown
from verl_kernel.preflight.trainer_mode import check_asynchronous
from verl_kernel.verl_keys import check_keys, find, read

logger = logging.getLogger(__name__)


def check_trainer(config: DictConfig) -> None:
    """Check that verl's V1 trainer is selected: the other one has neither samplers nor token-level rewards."""
    if not read(config, "trainer.use_v1"):
        raise ConfigError(
            "trainer.use_v1 is false, which starts verl's old trainer: it knows no PRS and takes a trajectory for one "
            "turn; set it to true"
        )


def check_options(config: DictConfig) -> None:
    """Check that our nodes parse: `kernelgym`, and those of the turn-level estimators."""
    from verl_kernel.advantage import ESTIMATORS, OPTIONS
    from verl_kernel.advantage.options import check_algorithm
    from verl_kernel.env import TrialChoice
    from verl_kernel.reward.options import parse_options

    TrialChoice.read(parse_options(find(config, "kernelgym")).env.trial_choice)
    if read(config, "algorithm.adv_estimator") in ESTIMATORS:
        check_algorithm(find(config, "algorithm"))
        for options_of_node in OPTIONS:
            options_of_node.from_node(find(config, options_of_node.NODE))


def check_mismatch(config: DictConfig) -> None:
    """Check that the settings of the mismatch correction fit each other."""
    from verl_kernel.loss import preflight as loss

    loss.check_mismatch(config)


def check_adaptive(config: DictConfig) -> None:
    """Check that the settings of Reinforce-Ada fit each other."""
    from verl_kernel.rollout import adaptive_preflight

    adaptive_preflight.check_adaptive(config)
    check_positive(config)


def check_sampler(config: DictConfig) -> None:
    """Check that the sampler's node parses and fits verl's settings, which verl checks for its own samplers only."""
    from verl_kernel.reward.judging import has_our_sampler
    from verl_kernel.sampler.preflight import check_switches

    if has_our_sampler(config):
        check_switches(config)


def check_data(config: DictConfig) -> None:
    """Check that every dataset file is named and exists, and that its rows have prompts and can be judged."""
    from verl_kernel.data.rows import check_rows

    for split, what in (
        ("train", "tasks to train on"),
        ("val", "tasks to validate on, which verl reads at every start"),
    ):
        if not read(config, f"data.{split}_files"):
            raise DataError(f"data.{split}_files names no file: give a parquet file of {what}")
    for key, path in _dataset_files(config):
        try:
            check_rows(path)
        except DataError as exc:
            raise DataError(f"{key}: {exc}") from exc


def check_agents(config: DictConfig) -> None:
    """Check that verl will find the agent loop of every row: a row's `agent_name` overrides the default."""
    from verl_kernel.sampler.preflight import agents

    known = agent_loops(config)
    for key, path in _dataset_files(config):
        for name in sorted(agents(path, read(config, LOOP)) - known):
            raise DataError(f"{key}: {unknown(f'the agent_name of a row in {path}', name, known)}")


def check_measured(config: DictConfig) -> None:
    """Check that rejection has rollouts whose coverage is measured."""
    from verl_kernel.reward.judging import has_our_sampler
    from verl_kernel.sampler.preflight import check_coverage

    if has_our_sampler(config):
        check_coverage(config, [path for _, path in _dataset_files(config, "train")])


def check_model(config: DictConfig) -> None:
    """Check that a model path that names a folder holds a model."""
    path = read(config, "actor_rollout_ref.model.path")
    named_folder = path.startswith((".", "/", "~")) or path.count("/") != 1 or not _may_be_on_the_hub(path)
    if named_folder and "://" not in path and not (Path(path).expanduser() / "config.json").is_file():
        raise ConfigError(
            f"actor_rollout_ref.model.path is {path}, which holds no config.json: give a model's folder or hub "
            "name, or make the quickstart's with `verl-kernel data quickstart`"
        )


def check_chat_template(config: DictConfig) -> None:
    """Check that the model's chat template ends turns in a way that the multi-turn agent loop can follow."""
    from verl_kernel.rollout.preflight import check_turn_end

    if _plays_ours(config):
        check_turn_end(config)


def check_context(config: DictConfig) -> None:
    """Check that prompts that show a few earlier turns are for validation only, and have space for them."""
    from verl_kernel.rollout import preflight as rollout

    if _plays_ours(config):
        rollout.check_context(config)


def check_positive(config: DictConfig) -> None:
    """Check that `algorithm.ada.positive` is a figure of our agent loop or reward manager; others may report anything.

    Raises:
        ConfigError: it is not; a run would notice only when its first rollouts are judged.
    """
    from verl_kernel.plugin import AGENT_LOOP, REWARD_MANAGER
    from verl_kernel.reward.manager import extra_info
    from verl_kernel.reward.record import TurnRecord
    from verl_kernel.rollout.trajectory import summarise

    lost = EvalResult(task_id="", status=EvalStatus.INFRA_ERROR)
    options = AdaOptions.from_node(find(config, ADA))
    if options.sampling == "none":
        return
    if read(config, LOOP) == AGENT_LOOP:
        options.is_positive(summarise([TurnRecord(start=0, stop=0, reward=0.0, result=lost)]))
    elif read(config, NAMES["reward manager"]) == REWARD_MANAGER:
        options.is_positive(extra_info(lost))


def check_verls_own(config: DictConfig) -> None:
    """Check that verl's `validate_config` and its classes for the nodes of actor and rollout accept the configuration.

    Raises:
        ConfigError: they reject it; the message is verl's own.
    """
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    plain = {str(key): value for key, value in config.items() if key != "hydra"}
    resolved = OmegaConf.create(OmegaConf.to_container(OmegaConf.create(plain), resolve=True))
    try:
        # It prints that all is well, and warns about things that our estimators do not need (a critic).
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            validate_config(resolved, need_reference_policy(resolved), need_critic(resolved))
            omega_conf_to_dataclass(resolved.actor_rollout_ref.rollout)
    except Exception as exc:  # any exception of verl here would end the run later
        text = " ".join(str(exc).split()) or type(exc).__name__
        raise ConfigError(f"verl refuses this configuration: {text}") from exc


CHECKS: tuple[Callable[[DictConfig], None], ...] = (
    check_keys,
    check_trainer,
    check_registries,
    check_names,
    check_asynchronous,
    check_options,
    check_sampler,
    check_mismatch,
    check_combination,
    check_adaptive,
    check_model,
    check_data,
    check_agents,
    check_context,
    check_chat_template,
    check_measured,
    check_shards,
    check_verls_own,
)
"""In this order: cheap checks first, and those whose failures explain later ones."""


def _may_be_on_the_hub(path: str) -> bool:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        try_to_load_from_cache(path, "config.json")
    except HFValidationError:
        return False
    return True


def _plays_ours(config: DictConfig) -> bool:
    """Whether any row is played by our agent loop; the dataset files exist."""
    from verl_kernel.plugin import AGENT_LOOP
    from verl_kernel.sampler.preflight import agents

    return any(AGENT_LOOP in agents(path, read(config, LOOP)) for _, path in _dataset_files(config))


def _dataset_files(config: DictConfig, *splits: str) -> Iterator[tuple[str, str]]:
    for key in (f"data.{split}_files" for split in splits or ("train", "val")):
        files = read(config, key) or []
        for path in [files] if isinstance(files, str) else files:
            if "://" not in path:
                yield key, str(Path(path).expanduser())
