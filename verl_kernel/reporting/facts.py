# SPDX-License-Identifier: Apache-2.0
"""Facts about a run: its configuration, which Hydra left in the run's folder, and the source of all times."""

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
    "validation data": "data.val_files",
    "seed of the data": "data.seed",
    "estimator": "algorithm.adv_estimator",
    "turns": "kernelgym.max_turns",
    "prompts a step": "data.train_batch_size",
    "rollouts a prompt": "actor_rollout_ref.rollout.n",
    "learning rate": "actor_rollout_ref.actor.optim.lr",
    "loss": "actor_rollout_ref.actor.policy_loss.loss_mode",
    "mismatch rejects by": "algorithm.rollout_correction.rollout_rs",
    "mismatch weighs": "algorithm.rollout_correction.rollout_is",
    "speedup in the reward": "kernelgym.reward.variant",
    "coverage in the reward": "kernelgym.reward.coverage_weight",
    "PRS": "trainer.v1.sampler.sampler_kwargs.enabled",
    "trainer": "trainer.v1.trainer_mode",
}
_PARTS = {
    "token": "a token's", "seq": "a trajectory's", "group": "a prompt's", "mean": "mean", "max": "largest",
    "sum": "summed", "k1": "ratio", "k2": "squared log ratio", "k3": "divergence",
}  # fmt: skip
"""Parts of the names of verl's mismatch rules."""
_WORDS = {
    "loss": {"vanilla": "PPO's clip (vanilla)", "gpg": "policy gradient without a ratio (gpg)"},
    "mismatch weighs": {"token": "each token", "sequence": "each trajectory"},
    "speedup in the reward": {"sum": "itself, capped", "weighted": "whether it is one", "milestone": "by milestones"},
    "PRS": {"True": "on", "False": "off"},
}


def run_facts(folder: Path, steps: Sequence[Step]) -> dict[str, str]:
    """Return facts by name, in the order of display; unknown facts are left out."""
    config = _config(folder / ".hydra" / "config.yaml")
    facts = {"steps": _length(steps, _select(config, "trainer.total_training_steps"))}
    seconds = [value for _, value in series(steps, "timing_s/step")]
    if seconds:
        facts["training"] = f"{sum(seconds):.0f} s, without start-up and validation before it"
    for name, key in _KEYS.items():
        if (value := _select(config, key)) is not None:
            facts[name] = _plain(name, value)
    return facts


def timing_source(steps: Sequence[Step]) -> str:
    """Return the source of the run's times and speedups."""
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


def _plain(name: str, value: str) -> str:
    """Return a value of the configuration in words, if there are words for it."""
    if name != "mismatch rejects by":
        return _WORDS.get(name, {}).get(value, value)
    rules = [[_PARTS.get(part) for part in rule.strip().split("_")] for rule in value.split(",")]
    known = all(part is not None for rule in rules for part in rule)
    return f"{' and '.join(' '.join(map(str, rule)) for rule in rules)} ({value})" if known else value


def _config(path: Path) -> DictConfig:
    try:
        config = OmegaConf.load(path)
    except (OSError, OmegaConfBaseException, yaml.YAMLError):  # The report is made without the configuration.
        config = None
    return config if isinstance(config, DictConfig) else OmegaConf.create({})


def _select(config: DictConfig, key: str) -> str | None:
    try:
        value = OmegaConf.select(config, key)
    except OmegaConfBaseException:  # Only the run itself could resolve this interpolation.
        return None
    return None if value is None else str(value)
