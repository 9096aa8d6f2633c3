# SPDX-License-Identifier: Apache-2.0
"""The option `kernelgym.judge_resources`: Ray resources that judges need, which decide on which nodes they run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_kernel.errors import ConfigError

_KEY = "kernelgym.judge_resources"
_OWN_OPTIONS = {"CPU": "kernelgym.cpus_per_judge", "GPU": "kernelgym.gpus_per_judge"}


def parse_resources(node: Any) -> tuple[tuple[str, float], ...]:
    """Convert a value of the option to pairs of name and amount; a value that was converted stays as it is.

    Raises:
        ConfigError: the value is no mapping, or a name or an amount is invalid.
    """
    if isinstance(node, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in node):
        node = dict(node)
    if not isinstance(node, Mapping | None):
        raise ConfigError(f"{_KEY} is {node!r}; it must be a mapping of Ray resources to amounts, as in {{rack_a: 1}}")
    for name, amount in (node or {}).items():
        _check_name(name)
        _check_amount(name, amount)
    return tuple((name, float(amount)) for name, amount in (node or {}).items())


def _check_name(name: Any) -> None:
    if name in _OWN_OPTIONS:
        raise ConfigError(f"{_KEY} names {name}: set {_OWN_OPTIONS[name]} instead")
    if not isinstance(name, str) or not name:
        raise ConfigError(
            f"{_KEY} names the resource {name!r}; it must be a word that `ray start --resources` declares"
        )


def _check_amount(name: str, amount: Any) -> None:
    """Refuse amounts that Ray would refuse: it takes fractions in units of 1/10,000, and whole numbers above 1."""
    number = isinstance(amount, int | float) and not isinstance(amount, bool)
    if not number or not (0.0001 <= amount <= 1 or (amount > 1 and float(amount).is_integer())):
        raise ConfigError(
            f"{_KEY} asks for {amount!r} of {name}; an amount is at least 0.0001, and whole where it is above 1"
        )
