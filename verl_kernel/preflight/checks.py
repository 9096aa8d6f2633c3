# SPDX-License-Identifier: Apache-2.0
"""All checks before a run starts, in a table, and the Hydra callback that makes them.

They look at a composed configuration, its data and its model, before Ray, a model or a server starts. Hydra only warns
of an exception in a callback, so a failed check ends the process with SystemExit, whose text is one sentence naming the
key and the remedy.
"""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from verl_kernel.adaptive import AdaOptions
from verl_kernel.adaptive.options import NODE as ADA
from verl_kernel.data.rows import check_rows
from verl_kernel.env import EvalResult, EvalStatus
from verl_kernel.errors import ConfigError, DataError, VerlKernelError
from verl_kernel.preflight.hardware import Machine, this_machine, this_platform
from verl_kernel.preflight.names import LOOP, NAMES, agent_loops, check_backends, check_names, check_registries, unknown
from verl_kernel.preflight.placement import (
    check_attention,
    check_driver,
    check_gpus,
    check_hub,
    check_judges,
    check_loggers,
    check_machine,
    check_platform,
    check_shards,
    uses_gym,
)
from verl_kernel.preflight.resume import check_resumed, remember
from verl_kernel.preflight.sizes import check_batch, check_lengths, check_memory, check_prompts
from verl_kernel.preflight.trainer_mode import check_asynchronous
from verl_kernel.preflight.unread_keys import check_unread, unread
from verl_kernel.reward.profiling import ProfilingReward
from verl_kernel.reward.rows import has_our_sampler
from verl_kernel.rollout.preflight import check_adaptive, check_context, check_novelty, check_thinking, check_turn_end
from verl_kernel.sampler.preflight import agents, check_coverage, check_switches
from verl_kernel.verl_keys import check_keys, find, read
from verl_kernel.verl_names import AGENT_LOOP, REWARD_MANAGER

logger = logging.getLogger(__name__)
ESTIMATOR = "algorithm.adv_estimator"
LOSS = "actor_rollout_ref.actor.policy_loss.loss_mode"
ROLLOUTS = "actor_rollout_ref.rollout.n"
SINGLETON = "algorithm.trloo.singleton"
CUSTOM_REWARD = "reward.custom_reward_function.path"

REFUSED_PAIRS = {
    ("asymre_shift", "asymre_kl"): "the lowered baseline and the pull towards the sampler are one term, counted twice",
    ("rsft", "asymre_kl"): "the pull towards all sampled answers would teach the wrong ones too",
}
"""Refused pairs of estimator and loss, and the reasons. `rec_group_mean` is the estimator's plain form."""


def check_combination(config: DictConfig) -> None:
    """Check that estimator and policy loss do not contradict each other, and that the estimator has what it compares.

    Raises:
        ConfigError: one of these does not hold; the message names the keys and the remedy.
    """
    from verl_kernel.advantage import GROUPED

    estimator, loss = (read(config, key) for key in (ESTIMATOR, LOSS))
    if (estimator, loss) in REFUSED_PAIRS:
        raise ConfigError(
            f"{ESTIMATOR} is {estimator} and {LOSS} is {loss}: {REFUSED_PAIRS[estimator, loss]}; set {ESTIMATOR} to "
            f"rec_group_mean, or {LOSS} to gpg"
        )
    alone = read(config, ROLLOUTS) == 1 and find(config, SINGLETON) == "zero"
    if estimator in GROUPED and alone:
        raise ConfigError(
            f"{ROLLOUTS} is 1 and {ESTIMATOR} is {estimator}, which compares the rollouts of a prompt, so that every "
            f"advantage would be 0: raise {ROLLOUTS}, or set {SINGLETON} to raw"
        )


def check_reward(config: DictConfig) -> None:
    """Refuse a reward function that nothing would call: the gym's agent loop and manager give the reward themselves."""
    if (path := find(config, CUSTOM_REWARD)) and uses_gym(config):
        raise ConfigError(
            f"{CUSTOM_REWARD} is {path}, and the reward is the gym's, which never calls it: remove it, or take verl's "
            "own reward manager (reward.reward_manager.name=naive) and agent loop (single_turn_agent)"
        )


def check_trainer(config: DictConfig) -> None:
    """Check that verl's V1 trainer is selected: the other one has neither samplers nor token-level rewards."""
    if not read(config, "trainer.use_v1"):
        raise ConfigError(
            "trainer.use_v1 is false, which starts verl's old trainer: it knows no PRS and takes a trajectory for one "
            "turn; set it to true"
        )


def check_log_file(config: DictConfig) -> None:
    """Check that verl's file logger, which writes to `./PROJECT/EXPERIMENT.jsonl`, does not write into a package.

    Raises:
        ConfigError: the file would lie in the folder of a package, or in one below it.
    """
    if "file" not in read(config, "trainer.logger") or "VERL_FILE_LOGGER_PATH" in os.environ:
        return
    project, experiment = read(config, "trainer.project_name"), read(config, "trainer.experiment_name")
    root = Path(os.environ.get("VERL_FILE_LOGGER_ROOT", ".")).expanduser()
    file = (root / project / f"{experiment}.jsonl").resolve()
    package = next((folder for folder in file.parents if (folder / "__init__.py").exists()), None)
    if package is not None:
        raise ConfigError(
            f"trainer.project_name is {project} and trainer.experiment_name {experiment}, and the file logger would "
            f"write into the package {package}: set the first to another name, such as kernel_runs, or "
            "VERL_FILE_LOGGER_PATH to a file"
        )


def check_gym(config: DictConfig) -> None:
    """Check that our node `kernelgym` parses."""
    from verl_kernel.reward.options import parse_options

    path = parse_options(find(config, "kernelgym")).env.trial_choice
    if path is not None:
        from verl_kernel.env import TrialChoice  # imports torch

        TrialChoice.read(path)


def check_options(config: DictConfig) -> None:
    """Check that the nodes of the turn-level estimators parse."""
    from verl_kernel.advantage import ESTIMATORS, OPTIONS  # imports torch
    from verl_kernel.advantage.options import check_algorithm

    if read(config, "algorithm.adv_estimator") in ESTIMATORS:
        check_algorithm(find(config, "algorithm"))
        for options_of_node in OPTIONS:
            options_of_node.from_node(find(config, options_of_node.NODE))


def check_losses(config: DictConfig) -> None:
    """Check that the settings of mismatch correction and policy loss fit each other."""
    from verl_kernel.loss.preflight import check_mismatch  # imports torch

    check_mismatch(config)


def check_data(config: DictConfig) -> None:
    """Check that every dataset file is named and exists, and that its rows have prompts and can be judged."""
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
    loops = agent_loops(config)
    for key, path in _dataset_files(config):
        for name in sorted(agents(path, read(config, LOOP)) - loops):
            raise DataError(f"{key}: {unknown(f'the agent_name of a row in {path}', name, loops)}")


def check_model(config: DictConfig) -> None:
    """Check that a model path that names a folder holds a model."""
    path = read(config, "actor_rollout_ref.model.path")
    named_folder = path.startswith((".", "/", "~")) or path.count("/") != 1 or not _may_be_on_the_hub(path)
    if named_folder and "://" not in path and not (Path(path).expanduser() / "config.json").is_file():
        raise ConfigError(
            f"actor_rollout_ref.model.path is {path}, which holds no config.json: give a model's folder or hub "
            "name, or make the quickstart's with `verl-kernel data quickstart`"
        )


def check_measured(config: DictConfig) -> None:
    """Check that rejection has rollouts whose coverage is measured."""
    check_coverage(config, [path for _, path in _dataset_files(config, "train")])


def check_positive(config: DictConfig) -> None:
    """Check that `algorithm.ada.positive` is a figure of our agent loop or reward manager; others may report anything.

    Raises:
        ConfigError: it is not; a run would notice only when its first rollouts are judged.
    """
    options = AdaOptions.from_node(find(config, ADA))
    if options.sampling == "none":
        return
    from verl_kernel.reward.manager import extra_info
    from verl_kernel.reward.record import TurnRecord
    from verl_kernel.rollout.trajectory import summarise

    lost = EvalResult(task_id="", status=EvalStatus.INFRA_ERROR)
    if read(config, LOOP) == AGENT_LOOP:
        options.is_positive(summarise([TurnRecord(start=0, stop=0, reward=0.0, result=lost)]))
    elif read(config, NAMES["reward manager"]) == REWARD_MANAGER:
        options.is_positive(extra_info(lost))


def check_accepted(config: DictConfig) -> None:
    """Check that `rsft`, which takes the turns with a reward above 0 for right ones, cannot miss a right answer.

    Raises:
        ConfigError: a right answer may earn nothing, as one whose speedup and coverage are unknown.
    """
    if read(config, ESTIMATOR) != "rsft":
        return
    reward = ProfilingReward.from_node(find(config, ProfilingReward.NODE))
    lowest = reward.scale * reward.correct_weight - reward.slow_penalty
    if lowest <= 0:
        node = ProfilingReward.NODE
        raise ConfigError(
            f"{ESTIMATOR} is rsft, which learns from every answer that earns more than 0, and a right one may earn "
            f"{lowest:g} ({node}.scale * {node}.correct_weight - {node}.slow_penalty): raise {node}.correct_weight, or "
            f"lower {node}.slow_penalty"
        )


def check_verls_own(config: DictConfig) -> None:
    """Check that verl's `validate_config` and its classes for the nodes of actor and rollout accept the configuration.

    Raises:
        ConfigError: they reject it; the message is verl's own.
    """
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    from verl_kernel.cpu.patches import patch_vllm_version

    patch_vllm_version()  # beside vLLM's CPU build, recipes for machines with GPUs are checked too
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
    return any(AGENT_LOOP in agents(path, read(config, LOOP)) for _, path in _dataset_files(config))


def _dataset_files(config: DictConfig, *splits: str) -> Iterator[tuple[str, str]]:
    for key in (f"data.{split}_files" for split in splits or ("train", "val")):
        files = read(config, key) or []
        for path in [files] if isinstance(files, str) else files:
            if "://" not in path:
                yield key, str(Path(path).expanduser())


class PreflightCallback(Callback):  # type: ignore[misc]
    """Hydra callback that runs `preflight` before verl's main function."""

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Run all checks, and note the settings of the run beside its checkpoints.

        Raises:
            SystemExit: one of them failed.
        """
        try:
            for note in preflight(config):
                logger.info("not checked before the start: %s", note)
            remember(config)
        except VerlKernelError as exc:
            raise SystemExit(f"verl-kernel: {exc}") from None
        except Exception as exc:
            # Hydra would turn the exception into a warning and continue.
            logger.exception("a check before the start failed by itself")
            raise SystemExit(1) from exc


def preflight(config: DictConfig, machine: Machine | None = None) -> tuple[str, ...]:
    """Run all checks on a composed configuration.

    Args:
        config: configuration of a training.
        machine: machine of the training; this one if None.

    Returns:
        What could not be checked from here, and why.

    Raises:
        VerlKernelError: the first check that failed.
    """
    check_platform(config, machine or Machine(this_platform(), gpus=0))
    for rule in RULES:
        if rule.applies(config):
            rule.check(config)
    machine = machine or this_machine(config)
    return tuple(note for placed in ON_A_MACHINE for note in placed(config, machine))


@dataclass(frozen=True)
class Rule:
    """A check of the configuration, and the configurations for which it is made."""

    check: Callable[[DictConfig], None]
    applies: Callable[[DictConfig], bool] = lambda config: True


RULES = (
    Rule(check_keys),
    Rule(check_trainer),
    Rule(check_log_file),
    Rule(check_backends),
    Rule(check_unread),
    Rule(check_asynchronous),
    Rule(check_gym),
    Rule(check_switches, has_our_sampler),
    Rule(check_reward),
    Rule(check_adaptive),
    Rule(check_accepted),
    Rule(check_shards),
    Rule(check_model),
    Rule(check_data),
    Rule(check_batch),
    Rule(check_novelty),
    Rule(check_context, _plays_ours),
    Rule(check_lengths, _plays_ours),
    Rule(check_options),
    Rule(check_combination),
    Rule(check_positive),
    Rule(check_registries),
    Rule(check_names),
    Rule(check_losses),
    Rule(check_agents),
    Rule(check_resumed),
    Rule(check_turn_end, _plays_ours),
    Rule(check_thinking, _plays_ours),
    Rule(check_prompts),
    Rule(check_measured, has_our_sampler),
    Rule(check_verls_own),
)
"""In this order: first those for which neither torch nor verl is imported, so that most slips are told in two seconds;
then those whose failures explain later ones."""

ON_A_MACHINE: tuple[Callable[[DictConfig, Machine], Iterator[str]], ...] = (
    check_driver,
    check_judges,
    check_gpus,
    check_memory,
    check_attention,
    check_loggers,
    check_machine,
    check_hub,
    unread,
)
"""Run after `RULES`: problems of a machine take the longest to fix."""
