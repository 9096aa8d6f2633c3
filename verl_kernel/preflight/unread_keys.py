# SPDX-License-Identifier: Apache-2.0
"""Checks for keys that nothing reads: Hydra takes any key behind a `+`, and any key in a recipe's own file.

A key in a node of verl's that verl's configuration lacks is read by somebody if a file of verl or of this package names
it. If none does, it is a slip, or it is meant for code of the user's.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_kernel.errors import ConfigError
from verl_kernel.option_group import nearest
from verl_kernel.preflight.hardware import Machine
from verl_kernel.verl_keys import find

_PASSED_ON = re.compile(r"kwargs|override|ray_init|custom|env")
"""Names of nodes whose keys verl hands to other packages as they are."""
_OWN_CODE = (
    "data.custom_cls.path",
    "reward.custom_reward_function.path",
    "reward.reward_manager.module.path",
    "actor_rollout_ref.rollout.agent.agent_loop_config_path",
)
"""Keys that name a user's own code, which may read keys of its own."""


def check_unread(config: DictConfig) -> None:
    """Check that no key that nothing reads is nearly the name of one that verl reads.

    Raises:
        ConfigError: one is; the message names the key that may be meant.
    """
    if any(find(config, key) for key in _OWN_CODE) or "VERL_USE_EXTERNAL_MODULES" in os.environ:
        return
    for node, name, names in _unread(config):
        if near := nearest(name, names):
            raise ConfigError(
                f"{node}.{name} is a key that neither verl nor verl_kernel reads; "
                f"{near.replace('mean ', f'mean {node}.')}correct it, or remove it"
            )


def unread(config: DictConfig, machine: Machine) -> Iterator[str]:
    """Yield the keys that nothing of verl or of this package reads."""
    for node, name, _ in _unread(config):
        yield f"{node}.{name}, a key that neither verl nor verl_kernel reads"


def _unread(config: DictConfig) -> Iterator[tuple[str, str, list[str]]]:
    """Yield nodes of verl's, a key in them that nothing reads, and the keys that verl has there."""
    own = OmegaConf.to_yaml(config)
    for node, names in _verls_nodes().items():
        try:
            there = OmegaConf.select(config, node, throw_on_resolution_failure=False)
        except OmegaConfBaseException:  # a node above it is a value
            continue
        for name in map(str, there) if isinstance(there, DictConfig) else ():
            if name not in names and not _PASSED_ON.search(name) and f"{name}}}" not in own and not _is_named(name):
                yield node, name, names


@functools.cache
def _verls_nodes() -> dict[str, list[str]]:
    """Return the keys in the nodes of verl's whole configuration, by the nodes' full names."""
    nodes: dict[str, list[str]] = {}
    pending: list[tuple[str, Any]] = [
        ("", OmegaConf.load(folder_of("verl") / "trainer" / "config" / "_generated_ppo_trainer.yaml"))
    ]
    while pending:
        node, keys = pending.pop()
        if node and len(keys) and not _PASSED_ON.search(node.rpartition(".")[2]):
            nodes[node] = [str(name) for name in keys]
        for name in keys:
            inner = None if OmegaConf.is_missing(keys, name) else keys._get_node(name)
            if isinstance(inner, DictConfig) and not inner._is_none() and not inner._is_interpolation():
                pending.append((f"{node}.{name}" if node else str(name), inner))
    return nodes


def _is_named(name: str) -> bool:
    """Whether a file of verl or of this package holds a name as a word."""
    word = re.compile(rb"\b" + re.escape(name.encode()) + rb"\b")
    return any(word.search(text) for text in _sources())


@functools.cache
def _sources() -> tuple[bytes, ...]:
    packages = (folder_of("verl"), folder_of("verl_kernel"))
    return tuple(path.read_bytes() for package in packages for path in package.rglob("*.py"))


def folder_of(name: str) -> Path:
    """Return the folder of an installed package, without importing it."""
    spec = find_spec(name)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0])
