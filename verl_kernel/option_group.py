# SPDX-License-Identifier: Apache-2.0
"""Base of the groups of options: frozen dataclasses whose annotations pydantic checks.

An annotation states all conditions on a single value: its type, `Literal` for words, `Interval` for numbers, and if
these do not suffice, a string in `Annotated` that describes the value. `__post_init__` checks conditions between
values. pydantic is imported when the first group is created: processes that only name the types do not need it.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
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
    LEFT_OPEN: ClassVar[tuple[str, ...]] = ()
    """Keys that our recipes set to null: the code that reads the node decides their values."""
    CONSTANTS: ClassVar[Mapping[str, float]] = {}
    """Keys of earlier releases that are now constants, with their values."""

    def __post_init__(self) -> None:
        for key, value in list(vars(self).items()):
            object.__setattr__(self, key, self._checked(key, value))

    def _checked(self, key: str, value: Any) -> Any:
        return checked(f"{self.NODE}.{key}", value, self._hints()[key])

    @classmethod
    def from_node(cls, node: Mapping[str, Any] | None) -> Self:
        """Read the node of a composed configuration, and refuse unknown keys; None means the defaults."""
        values = as_mapping(cls.NODE, node, option_names(cls))
        for key in cls.CONSTANTS.keys() & values:
            raise ConfigError(f"{cls.NODE}.{key} {is_constant(cls.CONSTANTS[key])}")
        refuse_unknown(cls.NODE, values, option_names(cls))
        return cls(**values)

    @classmethod
    def in_recipes(cls) -> dict[str, Any]:
        """Return the default value of each key in our recipes."""
        values = {
            option.name: option.default if option.default_factory is MISSING else option.default_factory()
            for option in fields(cls)
        }
        return {**values, **dict.fromkeys(cls.LEFT_OPEN)}

    @classmethod
    def is_set(cls, node: Mapping[str, Any] | None) -> bool:
        """Tell whether a node holds anything other than what our recipes hold by default."""
        usual = cls.in_recipes()
        return any(key not in usual or value != usual[key] for key, value in as_mapping(cls.NODE, node, usual).items())

    @classmethod
    @functools.cache
    def _hints(cls) -> dict[str, Any]:
        return get_type_hints(cls, include_extras=True)


def checked(key: str, value: Any, hint: Any) -> Any:
    """Check a value by its annotation; lists become tuples.

    Raises:
        ConfigError: the value does not match the annotation, or is not finite; the message names the key.
    """
    from pydantic import ValidationError

    adapter, rule, words = _rule(hint)
    value = tuple(value) if isinstance(value, list) else value
    try:
        return adapter.validate_python(value)
    except ValidationError:
        elements = value if isinstance(value, tuple) else (value,)
        wrong = next((item for item in elements if item not in words), value)
        raise ConfigError(f"{key} is {in_words(value)}; {nearest(wrong, words)}it must be {rule}") from None


def as_mapping(name: str, node: Any, keys: Iterable[str]) -> dict[str, Any]:
    """Return the keys and values of a node; empty if it is null.

    Raises:
        ConfigError: the node is a value or a list instead of a mapping.
    """
    if node is None:
        return {}
    if not isinstance(node, Mapping):
        example = next(iter(keys))
        raise ConfigError(f"{name} is {in_words(node)}; it must hold keys, such as {name}.{example}")
    return dict(node)


def nearest(name: object, names: Iterable[str]) -> str:
    """Return a question whether the known name nearest to a misspelt one was meant; empty if none is clearly nearest.

    The error lists all known names anyway, so equally near names (`sm_80` and `sm_90` to `sm_70`) add nothing.
    """
    ratios = {
        candidate: difflib.SequenceMatcher(None, str(name).lower(), candidate.lower()).ratio()
        for candidate in map(str, names)
    }
    best = max(ratios.values(), default=0.0)
    near = [candidate for candidate, ratio in ratios.items() if ratio == best]
    return f"did you mean {near[0]}? " if best >= 0.7 and len(near) == 1 else ""


def in_words(value: Any) -> str:
    """Return a value as a configuration writes it."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(in_words, value))}]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)


def words_of(hint: Any) -> tuple[str, ...]:
    """Return the words that an annotation allows for a value that is no list."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return () if get_origin(hint) is tuple else tuple(word for arm in get_args(hint) for word in words_of(arm))


@functools.cache
def _rule(hint: Any) -> tuple[Any, str, tuple[str, ...]]:
    """Return the check of an annotation's values, their description in words, and the allowed words."""
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(hint, config=ConfigDict(strict=True, allow_inf_nan=False)), description(hint), words_of(hint)


def is_constant(value: float) -> str:
    """Return the message about a former option that is now a constant."""
    return f"is a constant now, {value:g}: remove the key"


def option_names(kind: type[OptionGroup]) -> tuple[str, ...]:
    """Return the keys of a group, in order."""
    return tuple(field.name for field in fields(kind))


def refuse_unknown(node: str, keys: Iterable[Any], names: Iterable[str]) -> None:
    """Raise a ConfigError for the first key in `keys` that the node does not have."""
    names = tuple(names)
    for key in keys:
        if key not in names:
            raise ConfigError(f"{node}.{key} is not an option; {nearest(key, names)}known keys are {', '.join(names)}")


def description(hint: Any) -> str:
    """Describe in words the values that an annotation allows."""
    if type(None) in get_args(hint):
        (hint,) = (arm for arm in get_args(hint) if arm is not type(None))
        return f"{description(hint)}, or null"
    kind, *rules = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    for rule in rules:
        if isinstance(rule, str):
            return rule
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if kind in (int, float):
        return _number(kind, *rules)
    return "true or false" if kind is bool else "text"


def _number(kind: type, interval: Interval | None = None) -> str:
    number = "a whole number" if kind is int else "a finite number"
    if interval is None:
        return number
    low = f"above {interval.gt}" if interval.ge is None else f"of at least {interval.ge}"
    if interval.le is None:
        return f"{number} {low}"
    return (
        f"{number} {low}, at most {interval.le}"
        if interval.ge is None
        else f"a number between {interval.ge} and {interval.le}"
    )
