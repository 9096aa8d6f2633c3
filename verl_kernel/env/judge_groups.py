# SPDX-License-Identifier: Apache-2.0
"""The option `kernelgym.judge_resources`: Ray resources that judges need, which decide on which nodes they run.

A mapping of resources applies to all judges. A list of groups makes a pool with several kinds of judges; each group has
its own resources and number of judges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verl_kernel.errors import ConfigError

_KEY = "kernelgym.judge_resources"
_OWN_OPTIONS = {"CPU": "kernelgym.cpus_per_judge", "GPU": "kernelgym.gpus_per_judge"}
_FORMS = "{rack_a: 1}, or a list of groups, as in [{resources: {rack_a: 1}, num_judges: 4}]"


@dataclass(frozen=True)
class JudgeGroup:
    """A group of judges that ask Ray for the same resources."""

    resources: tuple[tuple[str, float], ...] = ()
    """Name and amount of each resource, for one judge."""
    num_judges: int | None = None
    """Number of judges; None for all judges of the pool."""

    @property
    def name(self) -> str:
        """The names of its resources; groups with the same name are the same kind of judges."""
        return "+".join(sorted(name for name, _ in self.resources))


def parse_groups(node: Any, num_judges: int) -> tuple[JudgeGroup, ...]:
    """Convert a value of the option to groups; values that are groups already stay as they are.

    Args:
        node: a mapping, a list of groups, or None.
        num_judges: `kernelgym.num_judges`, which the groups' numbers must add up to.

    Raises:
        ConfigError: the value has another form, or an amount or a number of judges is invalid.
    """
    if node is None or isinstance(node, Mapping):
        return (JudgeGroup(_resources(node)),) if node else ()
    if not isinstance(node, list | tuple):
        raise ConfigError(f"{_KEY} is {node!r}; it must be a mapping of Ray resources to amounts, as in {_FORMS}")
    groups = tuple(group if isinstance(group, JudgeGroup) else _group(group) for group in node)
    _check_sum(groups, num_judges)
    return groups


def _group(node: Any) -> JudgeGroup:
    if not isinstance(node, Mapping) or set(node) != {"resources", "num_judges"} or not node["resources"]:
        raise ConfigError(
            f"{_KEY} holds the group {node!r}; a group has the keys resources and num_judges, as in "
            "{resources: {rack_a: 1}, num_judges: 4}"
        )
    number = node["num_judges"]
    if type(number) is not int or number < 1:
        raise ConfigError(f"{_KEY} has a group whose num_judges is {number!r}; it must be a whole number of at least 1")
    return JudgeGroup(_resources(node["resources"]), number)


def _resources(node: Any) -> tuple[tuple[str, float], ...]:
    if not isinstance(node, Mapping):
        raise ConfigError(f"{_KEY} holds the resources {node!r}; they must be a mapping, as in {_FORMS}")
    for name, amount in node.items():
        _check_name(name)
        _check_amount(name, amount)
    return tuple((name, float(amount)) for name, amount in node.items())


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


def _check_sum(groups: tuple[JudgeGroup, ...], num_judges: int) -> None:
    numbers = [group.num_judges for group in groups if group.num_judges is not None]
    if numbers and sum(numbers) != num_judges:
        raise ConfigError(
            f"kernelgym.num_judges is {num_judges} and the groups of {_KEY} have {sum(numbers)} judges: set "
            f"kernelgym.num_judges to {sum(numbers)}"
        )
