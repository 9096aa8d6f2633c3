# SPDX-License-Identifier: Apache-2.0
"""The plan of a study: a recipe, its arms (lists of Hydra overrides) and seeds, read from a YAML file."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval

from recipes.cpu_study.held_out import FIGURES, is_figure
from verl_kernel.data.files import read_yaml
from verl_kernel.errors import ConfigError
from verl_kernel.option_group import as_mapping, checked, nearest

_OPTIONAL = (
    "overrides",
    "seeded",
    "comparisons",
    "also",
    "answers",
    "cost_of",
    "weights_of",
    "trains",
    "deviation",
)
_UNTRAINED = "trainer.val_only=true"


@dataclass(frozen=True)
class Arm:
    """One line of the study's figure."""

    name: str
    title: str
    """Name of the arm in legend and table."""
    overrides: tuple[str, ...] = ()
    answers: str = ""
    """Arm without training of whose answers this arm is the best of n (`best_of_n`); this arm itself is no run."""
    cost_of: str = ""
    """Arm whose tokens the n answers of a task may cost."""
    weights_of: str = ""
    """Arm of whose last weights this arm is a validation, under overrides of its own; it trains nothing."""
    trains: int | None = None
    """Training steps, where they are not the study's."""


@dataclass(frozen=True)
class Comparison:
    """Two arms and the effect expected of them, stated before they run.

    Raises:
        ConfigError: the figure is unknown, or no effect is expected.
    """

    name: str
    title: str
    arms: tuple[str, str]
    """The effect is the first one's figure minus the second's; `a + b` is the mean of two arms."""
    figure: str
    """The figure that decides: a key of `held_out.FIGURES`, after `<split>/` where only a split counts."""
    expected: float
    """Direction and size of the effect."""
    also: tuple[str, ...] = ()
    """Further figures to report, which decide nothing."""
    deviation: float | None = None
    """Standard deviation that the difference of one seed is taken to have; it gives the comparison its power."""

    def __post_init__(self) -> None:
        for figure in (self.figure, *self.also):
            if not is_figure(figure):
                raise ConfigError(
                    f"comparisons.{self.name}: {figure!r} is no figure; known are {', '.join(FIGURES)}, after "
                    "<split>/ for one split of the validation"
                )
        if not self.expected:
            raise ConfigError(f"comparisons.{self.name}.expected is {self.expected:g}; it is a size with its sign")


def arms_of(side: str) -> tuple[str, ...]:
    """Return the names of the arms whose mean a side of a comparison is."""
    return tuple(name.strip() for name in side.split("+"))


@dataclass(frozen=True)
class Study:
    """A recipe with arms and seeds; every seed of an arm is a run.

    Raises:
        ConfigError: a value cannot work; the message names its key.
    """

    recipe: str
    """Name of the configuration, for `--config-name`."""
    steps: int
    seeds: tuple[int, ...]
    minutes: float
    """Expected minutes per run, for the estimate before the first one has finished."""
    arms: tuple[Arm, ...]
    comparisons: tuple[Comparison, ...] = ()
    overrides: tuple[str, ...] = ()
    """Overrides of every run."""
    seeded: tuple[str, ...] = ()
    """Overrides of every run, with `{seed}` in place of the seed."""

    def __post_init__(self) -> None:
        for key in ("seeds", "arms"):
            if not getattr(self, key):
                raise ConfigError(f"{key} is empty; a study needs at least one")
        for item in self.seeded:
            _check_seeded(item)
        names = [arm.name for arm in self.arms]
        trained = [arm.name for arm in self.arms if not arm.answers]
        for arm in self.arms:
            if arm.answers or arm.cost_of:
                _check_named(arm, ("answers", "cost_of"), trained)
            if arm.weights_of:  # of an arm that has run before it
                _check_named(arm, ("weights_of",), trained[: trained.index(arm.name)])
        for one in self.comparisons:
            if len(one.arms) != 2 or not {arm for side in one.arms for arm in arms_of(side)} <= set(names):
                raise ConfigError(
                    f"comparisons.{one.name}.arms is {list(one.arms)}; it names two of {', '.join(names)}"
                )

    def runs(self) -> list[Run]:
        """Return all runs, every arm's first seed before any second seed, so that a stopped study can be compared."""
        return [Run(self, arm, seed) for seed in self.seeds for arm in self.arms if not arm.answers]


@dataclass(frozen=True)
class Run:
    """One training run of a study."""

    study: Study
    arm: Arm
    seed: int

    @property
    def name(self) -> str:
        """Return the name of the run's folder."""
        return f"{self.arm.name}-{self.seed}"

    @property
    def steps(self) -> int:
        """Return the number of training steps: 0 for a run that only validates."""
        return 0 if _UNTRAINED in self.overrides else self.last

    @property
    def last(self) -> int:
        """Return the step of the weights that a run with training ends with."""
        return self.study.steps if self.arm.trains is None else self.arm.trains

    @property
    def trained(self) -> Run | None:
        """Return the run whose last weights this one validates."""
        arms = [arm for arm in self.study.arms if arm.name == self.arm.weights_of]
        return Run(self.study, arms[0], self.seed) if arms else None

    @property
    def overrides(self) -> tuple[str, ...]:
        """Return the Hydra overrides of the run that do not depend on where it runs."""
        study = self.study
        seeded = tuple(item.format(seed=self.seed) for item in study.seeded)
        own = (*([_UNTRAINED] if self.arm.weights_of else []), *self.arm.overrides)
        return (f"trainer.total_training_steps={self.last}", *study.overrides, *seeded, *own)

    @property
    def command(self) -> list[str]:
        """Return the command line that trains the run."""
        return [sys.executable, "-m", "verl.trainer.main_ppo", f"--config-name={self.study.recipe}", *self.overrides]

    @property
    def fingerprint(self) -> str:
        """Return SHA-256 of recipe and overrides; a finished run with another fingerprint is run again."""
        return hashlib.sha256("\0".join((self.study.recipe, *self.overrides)).encode()).hexdigest()


_Overrides = Annotated[tuple[str, ...], "a list of Hydra overrides, as in [trainer.save_freq=-1]"]
_Figures = Annotated[tuple[str, ...], f"a list of figures, of {', '.join(FIGURES)}"]
_TYPES: dict[type, dict[str, Any]] = {
    Study: {
        "recipe": Annotated[str, "the name of a configuration, as in cpu_quickstart"],
        "steps": Annotated[int, Interval(ge=1)],
        "seeds": Annotated[tuple[int, ...], "a list of whole numbers, as in [0, 1, 2]"],
        "minutes": Annotated[float, Interval(gt=0)],
        "overrides": _Overrides,
        "seeded": _Overrides,
    },
    Arm: {
        "title": str,
        "overrides": _Overrides,
        "answers": str,
        "cost_of": str,
        "weights_of": str,
        "trains": Annotated[int, Interval(ge=1)],
    },
    Comparison: {
        "title": str,
        "arms": Annotated[tuple[str, ...], "a list of two arms"],
        "figure": str,
        "expected": float,
        "deviation": Annotated[float, Interval(gt=0)],
        "also": _Figures,
    },
}
"""Types of a plan's values; arms and comparisons are read separately."""
_LISTS = ("seeds", "overrides", "seeded", "also")


def read_study(path: Path) -> Study:
    """Read a study.

    Raises:
        ConfigError: the file does not exist, is no YAML mapping, lacks a key or holds an unknown one.
    """
    node = read_yaml(path, f"a study has the keys {', '.join(_keys(Study))}, as recipes/cpu_study/study.yaml has")
    try:
        return _study(node)
    except ConfigError as exc:
        raise ConfigError(f"{path}: {exc}") from exc


def _study(node: Mapping[str, Any]) -> Study:
    values = _values(node, Study, "")
    values["arms"] = tuple(
        Arm(name, **_values(arm, Arm, f"arms.{name}.")) for name, arm in _nodes("arms", node["arms"], Arm)
    )
    values["comparisons"] = tuple(
        Comparison(name, **_values(one, Comparison, f"comparisons.{name}."))
        for name, one in _nodes("comparisons", node.get("comparisons"), Comparison)
    )
    return Study(**values)


def _check_named(arm: Arm, keys: Sequence[str], known: Sequence[str]) -> None:
    for key in keys:
        if getattr(arm, key) not in known:
            raise ConfigError(f"arms.{arm.name}.{key} is {getattr(arm, key)!r}; it names one of {', '.join(known)}")


def _check_seeded(item: str) -> None:
    try:
        item.format(seed=0)
    except (KeyError, IndexError, ValueError):
        raise ConfigError(f"seeded holds {item!r}; only {{seed}} may stand in braces") from None


def _nodes(name: str, node: Any, kind: type) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the named parts of a node, each a mapping."""
    parts = as_mapping(name, node, ("NAME",))
    return [(str(key), as_mapping(f"{name}.{key}", part, _TYPES[kind])) for key, part in parts.items()]


def _values(node: Mapping[str, Any], kind: type, prefix: str) -> dict[str, Any]:
    """Return the values of a node, each of its key's type; null lists are empty."""
    known = [key for key in _keys(kind) if key != "name"]
    _check_keys(prefix, node, known)
    types = _TYPES[kind]
    given = {key: () if value is None and key in _LISTS else value for key, value in node.items() if key in types}
    return {key: checked(f"{prefix}{key}", value, types[key]) for key, value in given.items()}


def _check_keys(prefix: str, node: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raise a ConfigError for an unknown or a missing key."""
    for key in node:
        if key not in known:
            near = nearest(key, known)
            raise ConfigError(f"{prefix}{key} is not a key of a study; {near}known keys are {', '.join(known)}")
    needed = [key for key in known if key not in _OPTIONAL]
    if missing := [key for key in needed if key not in node]:
        raise ConfigError(f"{prefix}{missing[0]} is missing: give it a value; needed are {', '.join(needed)}")


def _keys(kind: type) -> list[str]:
    return [field.name for field in fields(kind)]
