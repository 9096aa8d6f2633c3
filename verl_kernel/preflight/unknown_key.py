# SPDX-License-Identifier: Apache-2.0
"""Finds which key of a configuration is meant by an unknown one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_kernel.adaptive import AdaOptions
from verl_kernel.env import GymOptions
from verl_kernel.option_group import is_constant, nearest, option_names
from verl_kernel.reward.options import RolloutOptions
from verl_kernel.reward.profiling import ProfilingReward
from verl_kernel.sampler.options import PRSOptions

_OPTIONS = {
    "kernelgym": (*option_names(RolloutOptions), *option_names(GymOptions)),
    "kernelgym.reward": option_names(ProfilingReward),
}
"""Keys of our nodes that a recipe need not set."""
_CONSTANTS = {f"{kind.NODE}.{key}": value for kind in (AdaOptions, PRSOptions) for key, value in kind.CONSTANTS.items()}


def remedy(config: DictConfig, key: str, word: str) -> str:
    """Say what to write instead of a key.

    Args:
        config: configuration that lacks the key.
        key: its full name.
        word: the override that names it.
    """
    if key in _CONSTANTS:
        return f"it {is_constant(_CONSTANTS[key])}"
    node, name = _deepest(config, key)
    if name in _OPTIONS.get(node, ()):
        return f"it is an option that this recipe does not set: write +{word}"
    known = [*dict.fromkeys((*map(str, _node(config, node)), *_OPTIONS.get(node, ())))]
    inside = f"{node}." if node else ""
    if near := nearest(name, known):
        return near.replace("mean ", f"mean {inside}").strip()
    elsewhere = [each for each in _keys(config) if each.endswith(f".{name}")]
    if len(elsewhere) == 1:
        return f"did you mean {elsewhere[0]}?"
    is_fixed = node in _OPTIONS or word.startswith("~")
    plus = "" if is_fixed else f"; a key that it lacks is added with a plus, as in +{word}"
    return f"{node or 'it'} holds {', '.join(known)}{plus}"


def _deepest(config: DictConfig, key: str) -> tuple[str, str]:
    """Return the longest prefix of a key that is a node, and the name that this node lacks."""
    names = key.split(".")
    nodes = (".".join(names[:size]) for size in range(len(names)))
    found = [node for node in nodes if isinstance(_at(config, node), DictConfig)]
    return found[-1], names[len(found) - 1]


def _node(config: DictConfig, name: str) -> DictConfig:
    node = _at(config, name)
    assert isinstance(node, DictConfig)
    return node


def _at(config: DictConfig, name: str) -> Any:
    """Return a value of a configuration; None if there is none."""
    return OmegaConf.select(config, name, throw_on_resolution_failure=False) if name else config


def _keys(node: DictConfig, inside: str = "") -> Iterator[str]:
    """Yield all keys, with the names of the nodes that contain them."""
    for name in map(str, node):
        yield f"{inside}{name}"
        if isinstance(inner := _at(node, name), DictConfig):
            yield from _keys(inner, f"{inside}{name}.")
