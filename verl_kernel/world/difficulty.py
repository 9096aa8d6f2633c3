# SPDX-License-Identifier: Apache-2.0
"""The table of difficulties (`difficulty.yaml`): what tasks are drawn, and which answers the cold start shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from verl_kernel.data.yaml_file import read_yaml
from verl_kernel.errors import ConfigError
from verl_kernel.world.answers import Kind
from verl_kernel.world.chains import DTYPES, HIDEABLE
from verl_kernel.world.ops import FAMILIES

TABLE = Path(__file__).with_name("difficulty.yaml")
_MOVES = {
    "error": ("repaired",),
    "partial": ("larger", "same"),
    "lazy": ("larger", "same"),
    "fused": ("same",),
    "decoy": ("honest", "same"),
}
"""Kinds of second answers that may follow each kind of first answer, in addition to a fresh one."""
_KEYS: Mapping[str, tuple[Any, ...]] = {
    "steps": (1, 2, 3, 4),
    "families": tuple(FAMILIES),
    "dtypes": DTYPES,
    "hidden": HIDEABLE,
    "first": tuple(kind.value for kind in Kind),
    "after": tuple(_MOVES),
    **{f"after.{state}": moves for state, moves in _MOVES.items()},
}
"""Keys that each mapping may have."""


@dataclass(frozen=True)
class Difficulty:
    """A row of the table.

    Raises:
        ConfigError: a key is unknown, or a number is no share; the message names the key.
    """

    steps: Mapping[int, float]
    """Weights of chains by their number of steps."""
    families: Mapping[str, float]
    """Weights of the families from which a step is drawn."""
    unseen: tuple[str, ...]
    """Families that neither training nor the cold start shows."""
    dtypes: Mapping[str, float]
    """Weights of the types of the output."""
    hidden: Mapping[str, float]
    """Shares of prompts that hide the sizes or the type."""
    first: Mapping[str, float]
    """Weights of first answers by kind."""
    after: Mapping[str, Mapping[str, float]]
    """Shares of second answers by the kind of the first."""
    single_turn: float
    """Share of conversations that end after the first answer."""
    unsaid: float
    """Share of conversations whose second prompt does not mention the first answer."""

    def __post_init__(self) -> None:
        _check_names("unseen", self.unseen, tuple(FAMILIES))
        for name, wanted in _KEYS.items():
            outer, _, inner = name.partition(".")
            node = getattr(self, outer)
            _check_shares(name, node.get(inner, {}) if inner else node, wanted)
        _check_shares("the row", {"single_turn": self.single_turn, "unsaid": self.unsaid}, ("single_turn", "unsaid"))
        for name in ("steps", "families", "dtypes", "first"):
            if not sum(getattr(self, name).values()):
                raise ConfigError(f"{name} holds no weight above 0: there is nothing to draw")
        seen = [family for family, weight in self.families.items() if weight and family not in self.unseen]
        if "elementwise" not in seen:
            raise ConfigError("families: elementwise has no weight or is unseen; other families need it between them")

    @property
    def seen(self) -> dict[str, float]:
        """Return the weights of the families that training shows."""
        return {family: weight for family, weight in self.families.items() if family not in self.unseen}


def read_difficulty(name: str, path: Path = TABLE) -> Difficulty:
    """Read a row of a table.

    Raises:
        ConfigError: the file cannot be read, has no such row, or the row is bad; the message names file and key.
    """
    table = read_yaml(path, f"write a table like {TABLE.name} of verl_kernel/world")
    if name not in table:
        raise ConfigError(f"{path} has no row {name!r}; its rows are {', '.join(table)}")
    try:
        row = table[name]
        if not isinstance(row, Mapping):
            raise ConfigError(f"the row is {row!r}; it is a mapping of keys and numbers")
        known = tuple(field.name for field in fields(Difficulty))
        _check_names("the row", row, known)
        if missing := [key for key in known if key not in row]:
            raise ConfigError(f"the row lacks {', '.join(missing)}")
        return Difficulty(**{**row, "unseen": tuple(row["unseen"] or ())})
    except ConfigError as exc:
        raise ConfigError(f"{path}, {name}: {exc} (compare {TABLE.name} of verl_kernel/world)") from exc


def _check_names(name: str, keys: Iterable[Any], known: tuple[Any, ...]) -> None:
    for key in keys:
        if key not in known:
            raise ConfigError(f"{name}: {key} is unknown; known are {', '.join(map(str, known))}")


def _check_shares(name: str, node: Any, known: tuple[Any, ...]) -> None:
    if not isinstance(node, Mapping):
        raise ConfigError(f"{name} is {node!r}; it is a mapping of {', '.join(map(str, known))}")
    _check_names(name, node, known)
    for key, value in node.items():
        if isinstance(value, Mapping):
            continue  # checked under its own name
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ConfigError(f"{name}.{key} is {value!r}; a share is a number from 0 to 1")
