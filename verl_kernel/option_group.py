# SPDX-License-Identifier: Apache-2.0
"""Base of the groups of options: frozen dataclasses whose annotations pydantic checks.

An annotation says all that holds for a value by itself: its type, `Literal` for words, `Interval` for numbers, and
where these say too little, a string in `Annotated` with what the value must be. What holds between values stands in
`__post_init__`. pydantic is imported when a first group is made: processes that only name the types do without it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from annotated_types import Interval

from verl_kernel.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class OptionGroup:
    """Options under one node of the configuration. Lists become tuples, so that options can be keys of a mapping.

    Raises:
        ConfigError: a value is not what its annotation asks for; the message names the full key.
    """

    NODE: ClassVar[str]
    """Full name of the node, as in `algorithm.trloo`."""

    def __post_init__(self) -> None:
        for key, value in list(vars(self).items()):
            object.__setattr__(self, key, self._checked(key, value))

    def _checked(self, key: str, value: Any) -> Any:
        from pydantic import ValidationError

        adapter, wanted = self._rules()[key]
        try:
            return adapter.validate_python(tuple(value) if isinstance(value, list) else value)
        except ValidationError:
            raise ConfigError(f"{self.NODE}.{key} is {value!r}; it must be {wanted}") from None

    @classmethod
    def from_node(cls, node: Mapping[str, Any] | None) -> Self:
        """Read the node of a composed configuration, refusing keys it does not know; None means the defaults."""
        refuse_unknown(cls.NODE, node or {}, option_names(cls))
        return cls(**dict(node or {}))

    @classmethod
    @functools.cache
    def _rules(cls) -> dict[str, tuple[Any, str]]:
        """For every key what checks its value, and what the value must be, in words."""
        from pydantic import ConfigDict, TypeAdapter

        hints = get_type_hints(cls, include_extras=True)
        strict = ConfigDict(strict=True)
        return {key: (TypeAdapter(hints[key], config=strict), _in_words(hints[key])) for key in option_names(cls)}


def option_names(kind: type[OptionGroup]) -> tuple[str, ...]:
    """The keys of a group, in order."""
    return tuple(field.name for field in fields(kind))


def refuse_unknown(node: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise a ConfigError for the first key in `given` that the node does not have."""
    known = tuple(known)
    for key in given:
        if key not in known:
            raise ConfigError(f"{node}.{key} is not an option; known keys are {', '.join(known)}")


def _in_words(hint: Any) -> str:
    if type(None) in get_args(hint):
        (hint,) = (arm for arm in get_args(hint) if arm is not type(None))
        return f"{_in_words(hint)}, or null"
    kind, *rules = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    for rule in rules:
        if isinstance(rule, str):
            return rule
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    return _number(kind, rules[0]) if rules else {bool: "true or false", int: "a whole number"}.get(kind, "text")


def _number(kind: type, interval: Interval) -> str:
    if interval.ge is not None and interval.le is not None:
        return f"a number between {interval.ge} and {interval.le}"
    number = "a whole number" if kind is int else "a finite number" if interval.lt == math.inf else "a number"
    return f"{number} of at least {interval.ge}" if interval.ge is not None else f"{number} above {interval.gt}"
