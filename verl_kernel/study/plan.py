# SPDX-License-Identifier: Apache-2.0
"""What a study runs: a recipe, its arms (lists of Hydra overrides) and seeds, read from a YAML file."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from verl_kernel.errors import ConfigError
from verl_kernel.study.held_out import FIGURES

_OPTIONAL = ("overrides", "seeded", "comparisons", "also")


@dataclass(frozen=True)
class Arm:
    """One line of the study's figure."""

    name: str
    title: str
    """What legend and table say."""
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """Two arms and what is expected of them, written down before they run.

    Raises:
        ConfigError: the figure is unknown, or no effect is expected.
    """

    name: str
    title: str
    arms: tuple[str, str]
    """The effect is the first one's figure less the second one's."""
    figure: str
    """The figure that decides: a key of `held_out.FIGURES`."""
    expected: float
    """Direction and size of the effect."""
    also: tuple[str, ...] = ()
    """Further figures to report, which decide nothing."""

    def __post_init__(self) -> None:
        for figure in (self.figure, *self.also):
            if figure not in FIGURES:
                raise ConfigError(f"comparisons.{self.name}: {figure!r} is no figure; known are {', '.join(FIGURES)}")
        if not isinstance(self.expected, int | float) or not self.expected:
            raise ConfigError(f"comparisons.{self.name}.expected is {self.expected!r}; it is a size with its sign")


@dataclass(frozen=True)
class Study:
    """Arms and seeds over one recipe; every seed of an arm is a run.

    Raises:
        ConfigError: a value cannot work; the message names its key.
    """

    recipe: str
    """Name of a configuration, for `--config-name`."""
    steps: int
    seeds: tuple[int, ...]
    minutes: float
    """What a run takes, for the estimate before the first one has finished."""
    arms: tuple[Arm, ...]
    comparisons: tuple[Comparison, ...] = ()
    overrides: tuple[str, ...] = ()
    """For every run."""
    seeded: tuple[str, ...] = ()
    """For every run, with `{seed}` in place of the seed."""

    def __post_init__(self) -> None:
        if not isinstance(self.steps, int) or self.steps < 1:
            raise ConfigError(f"steps is {self.steps!r}; a run needs a whole number of steps, at least 1")
        for key in ("seeds", "arms"):
            if not getattr(self, key):
                raise ConfigError(f"{key} is empty; a study needs at least one")
        names = [arm.name for arm in self.arms]
        for one in self.comparisons:
            if len(one.arms) != 2 or not set(one.arms) <= set(names):
                raise ConfigError(
                    f"comparisons.{one.name}.arms is {list(one.arms)}; it names two of {', '.join(names)}"
                )

    def runs(self) -> list[Run]:
        """All runs, the first seed of every arm before the second of any, so that a stopped study can be compared."""
        return [Run(self, arm, seed) for seed in self.seeds for arm in self.arms]


@dataclass(frozen=True)
class Run:
    """One training run of a study."""

    study: Study
    arm: Arm
    seed: int

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"{self.arm.name}-{self.seed}"

    @property
    def overrides(self) -> tuple[str, ...]:
        """All of its Hydra overrides."""
        study = self.study
        seeded = tuple(item.format(seed=self.seed) for item in study.seeded)
        return (f"trainer.total_training_steps={study.steps}", *study.overrides, *seeded, *self.arm.overrides)

    @property
    def command(self) -> list[str]:
        """The command line that trains it."""
        return [sys.executable, "-m", "verl.trainer.main_ppo", f"--config-name={self.study.recipe}", *self.overrides]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of recipe and overrides: a finished run of another one is run again."""
        return hashlib.sha256("\0".join((self.study.recipe, *self.overrides)).encode()).hexdigest()


def read_study(path: Path) -> Study:
    """Read a study.

    Raises:
        ConfigError: the file does not exist, is no YAML mapping, lacks a key or holds an unknown one.
    """
    try:
        node = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except (OSError, OmegaConfBaseException, ValueError, YAMLError) as exc:
        raise ConfigError(f"{path} cannot be read as a study: {exc}") from exc
    if not isinstance(node, dict):
        raise ConfigError(f"{path} is no mapping; a study has the keys {', '.join(_keys(Study))}")
    try:
        return _study({str(key): value for key, value in node.items()})
    except ConfigError as exc:
        raise ConfigError(f"{path}: {exc}") from exc


def _study(node: Mapping[str, Any]) -> Study:
    _check_keys(node, Study, "")
    arms = []
    for name, arm in (node["arms"] or {}).items():
        _check_keys({"name": name, **arm}, Arm, f"arms.{name}.")
        arms.append(Arm(name, arm["title"], _tuple(arm.get("overrides"))))
    comparisons = []
    for name, one in (node.get("comparisons") or {}).items():
        _check_keys({"name": name, **one}, Comparison, f"comparisons.{name}.")
        pair, also = _tuple(one["arms"]), _tuple(one.get("also"))
        comparisons.append(Comparison(name, one["title"], pair, one["figure"], one["expected"], also))
    lists: dict[str, Any] = {key: _tuple(node.get(key)) for key in ("seeds", "overrides", "seeded")}
    lists |= {"arms": tuple(arms), "comparisons": tuple(comparisons)}
    return Study(node["recipe"], node["steps"], minutes=node["minutes"], **lists)


def _check_keys(node: Mapping[str, Any], kind: type, prefix: str) -> None:
    known, needed = _keys(kind), [key for key in _keys(kind) if key not in _OPTIONAL]
    if unknown := sorted(set(node) - set(known)):
        raise ConfigError(f"{prefix}{unknown[0]} is not a key of a study; known are {', '.join(known)}")
    if missing := [key for key in needed if key not in node]:
        raise ConfigError(f"{prefix}{missing[0]} is missing")


def _keys(kind: type) -> list[str]:
    return [field.name for field in fields(kind)]


def _tuple(items: Any) -> tuple[Any, ...]:
    return tuple(items or ())
