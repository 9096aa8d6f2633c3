# SPDX-License-Identifier: Apache-2.0
"""What ran: facts of the configuration that Hydra left in the run's folder, and the source of all times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_kernel.reporting.steps import Step, number, series

_KEYS = {
    "experiment": "trainer.experiment_name",
    "model": "actor_rollout_ref.model.path",
    "training data": "data.train_files",
    "held-out data": "data.val_files",
    "seed of the data": "data.seed",
    "estimator": "algorithm.adv_estimator",
    "turns": "kernelgym.max_turns",
    "prompts a step": "data.train_batch_size",
    "rollouts a prompt": "actor_rollout_ref.rollout.n",
    "learning rate": "actor_rollout_ref.actor.optim.lr",
    "loss": "actor_rollout_ref.actor.policy_loss.loss_mode",
    "mismatch rejection": "algorithm.rollout_correction.rollout_rs",
    "mismatch weights": "algorithm.rollout_correction.rollout_is",
    "reward": "kernelgym.reward.variant",
    "coverage in the reward": "kernelgym.reward.coverage_weight",
    "PRS": "trainer.v1.sampler.sampler_kwargs.enabled",
    "trainer": "trainer.v1.trainer_mode",
}


def run_facts(folder: Path, steps: Sequence[Step]) -> dict[str, str]:
    """Facts by name, in the order of display; what is not known is left out."""
    config = _config(folder / ".hydra" / "config.yaml")
    facts = {"times": timing_source(steps), "steps": _length(steps, _select(config, "trainer.total_training_steps"))}
    seconds = [value for _, value in series(steps, "timing_s/step")]
    if seconds:
        facts["training"] = f"{sum(seconds):.0f} s, without start-up and validation before it"
    for name, key in _KEYS.items():
        if (value := _select(config, key)) is not None:
            facts[name] = value
    return facts


def timing_source(steps: Sequence[Step]) -> str:
    """Where the run's times and speedups come from."""
    shares = [number(step.get("kernel/simulated_clock")) for step in steps]
    known = {share for share in shares if share is not None}
    if not known:
        return "unknown: no kernel was timed"
    if known == {0.0}:
        return "cuda_event: measured on a GPU"
    return "simulated: a model of a GPU, no measurement" if known == {1.0} else "mixed: simulated and cuda_event"


def _length(steps: Sequence[Step], planned: str | None) -> str:
    last = steps[-1]["step"] if steps else 0
    if planned is None or not planned.isdigit():
        return str(last)
    return f"{last} of {planned}" + ("" if last >= int(planned) else ", not finished")


def _config(path: Path) -> DictConfig:
    try:
        config = OmegaConf.load(path)
    except (OSError, OmegaConfBaseException, yaml.YAMLError):  # The report does without.
        config = None
    return config if isinstance(config, DictConfig) else OmegaConf.create({})


def _select(config: DictConfig, key: str) -> str | None:
    try:
        value = OmegaConf.select(config, key)
    except OmegaConfBaseException:  # An interpolation that only the run could resolve.
        return None
    return None if value is None else str(value)
