# SPDX-License-Identifier: Apache-2.0
"""The table of answers in the hard world's conversations (`cpu_hard_mix.yaml`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from verl_kernel.data.files import read_yaml
from verl_kernel.errors import ConfigError
from verl_kernel.quickstart.hard.answers import Extent
from verl_kernel.quickstart.hard.tasks import LEVELS

DEFAULT = Path(__file__).parents[2] / "config" / "cpu_hard_mix.yaml"
_MOVES = {
    "error": ("repaired",),
    "wrong_type": ("repaired",),
    "lazy": ("larger", "same"),
    "partial": ("larger", "same"),
    "full": ("same",),
    "decoy": ("honest", "same"),
}
"""Kinds of second answers that may follow each kind of first answer, in addition to a fresh one."""


@dataclass(frozen=True)
class Mix:
    """Shares of answers; each is at least 0 and at most 1.

    Raises:
        ConfigError: a share is missing, unknown or no share; the message names its key.
    """

    faultless: Mapping[int, float]
    """Shares of first answers, by level."""
    extent: Mapping[str, float]
    """Shares of kernels, by the extent of the chain they compute."""
    decoy: float
    """Share of first answers without a flaw."""
    after: Mapping[str, Mapping[str, float]]
    """Shares of second answers, by the kind of the first."""
    single_turn: float
    """Share of conversations that end after the first answer."""
    unsaid: float
    """Share of conversations whose second prompt does not mention the first answer."""

    def __post_init__(self) -> None:
        _check_keys("faultless", self.faultless, LEVELS)
        _check_keys("extent", self.extent, [item.value for item in Extent if item is not Extent.DECOY])
        _check_keys("after", self.after, _MOVES)
        for state, moves in self.after.items():
            _check_keys(f"after.{state}", moves, _MOVES[state])
        for name, value in _leaves(vars(self)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
                raise ConfigError(f"{name} is {value!r}; a share is a number from 0 to 1")
        for name in ("extent", *(f"after.{state}" for state in self.after)):
            shares = self.extent if name == "extent" else self.after[name.removeprefix("after.")]
            if sum(shares.values()) > 1 + 1e-9 or not sum(self.extent.values()):
                raise ConfigError(f"the shares of {name} add up to {sum(shares.values()):.2f}; they share 1")


def read_mix(path: Path = DEFAULT) -> Mix:
    """Read a table.

    Raises:
        ConfigError: the file cannot be read, or does not fit `Mix`; the message names file, key and remedy.
    """
    node = read_yaml(path, f"write a table of answers like {DEFAULT.name} of verl_kernel/config")
    try:
        known = [field.name for field in fields(Mix)]
        _check_keys("the table", node, known)
        return Mix(**node)
    except ConfigError as exc:
        raise ConfigError(f"{path}: {exc} (compare {DEFAULT.name} of verl_kernel/config)") from exc


def _check_keys(name: str, node: Any, wanted: Any) -> None:
    if not isinstance(node, Mapping):
        raise ConfigError(f"{name} is {node!r}; it is a mapping of {', '.join(map(str, wanted))}")
    for key in (*node, *wanted):
        if (key in node) != (key in wanted):
            raise ConfigError(f"{name}: {key} is {'unknown' if key in node else 'missing'}")


def _leaves(node: Mapping[Any, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found = []
    for key, value in node.items():
        nested = isinstance(value, Mapping)
        found += _leaves(value, f"{prefix}{key}.") if nested else [(f"{prefix}{key}", value)]
    return found
