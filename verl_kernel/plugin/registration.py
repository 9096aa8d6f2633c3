# SPDX-License-Identifier: Apache-2.0
"""Registers this package's names in verl's registries as soon as each registry exists.

A name that verl or another plugin already holds is never overwritten: it is reported and left out, and all others are
registered. `doctor` and `preflight` call `missing()`.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from verl_kernel import (
    cpu,
    run_name,  # noqa: F401  recipes ask for it
)
from verl_kernel.advantage import ESTIMATORS
from verl_kernel.loss import LOSSES
from verl_kernel.plugin import trainer_log
from verl_kernel.plugin.after_import import after_import
from verl_kernel.verl_names import AGENT_LOOP, REWARD_MANAGER, append_messages

logger = logging.getLogger(__name__)

REWARD_MANAGER_CLASS = "verl_kernel.reward.manager.KernelGymRewardManager"
AGENT_LOOP_CLASS = "verl_kernel.rollout.agent_loop.KernelAgentLoop"

_REGISTRIES = {
    "advantage estimator": ("verl.trainer.ppo.core_algos", "ADV_ESTIMATOR_REGISTRY"),
    "policy loss": ("verl.trainer.ppo.core_algos", "POLICY_LOSS_REGISTRY"),
    "reward manager": ("verl.experimental.reward_loop.reward_manager.registry", "REWARD_MANAGER"),
    "agent loop": ("verl.experimental.agent_loop.agent_loop", "_agent_loop_registry"),
}


def _registry(kind: str) -> dict[str, Any]:
    module, attribute = _REGISTRIES[kind]
    entries: dict[str, Any] = getattr(importlib.import_module(module), attribute)
    return entries


def _path(entry: object) -> str:
    """Return the dotted name behind a registry entry: a function, a class, or an agent loop's `_target_` mapping."""
    if isinstance(entry, Mapping):
        return str(entry["_target_"])
    return f"{getattr(entry, '__module__', '?')}.{getattr(entry, '__qualname__', entry)}"


def _is_free(kind: str, name: str, path: str) -> bool:
    """Whether a name is not held by others; the holder is logged."""
    entry = _registry(kind).get(name)
    if entry is None or _path(entry) == path:
        return True
    logger.warning(
        "verl already has the %s %r, registered by %s: verl_kernel leaves out its own, %s; a recipe that names it will "
        "not start, all others will",
        kind,
        name,
        _path(entry),
        path,
    )
    return False


def expected() -> dict[tuple[str, str], str]:
    """Return the dotted name of what we register under each (kind, name)."""
    names = {("advantage estimator", name): _path(function) for name, function in ESTIMATORS.items()}
    names |= {("policy loss", name): _path(function) for name, function in LOSSES.items()}
    names["reward manager", REWARD_MANAGER] = REWARD_MANAGER_CLASS
    names["agent loop", AGENT_LOOP] = AGENT_LOOP_CLASS
    return names


def registered(kind: str) -> tuple[str, ...]:
    """Return all names in verl's registry of a kind, ours and others'."""
    return tuple(_registry(kind))


def missing() -> dict[tuple[str, str], str | None]:
    """Return our names that verl's registries do not hold for us, each with the dotted name of its holder."""
    absent: dict[tuple[str, str], str | None] = {}
    for (kind, name), path in expected().items():
        entry = _registry(kind).get(name)
        holder = None if entry is None else _path(entry)
        if holder != path:
            absent[kind, name] = holder
    return absent


def states() -> dict[tuple[str, str], str]:
    """Return the state of each of our names in words: `own`, `held by` another, or `missing`."""
    lost = missing()
    return {key: "own" if key not in lost else f"held by {lost[key]}" if lost[key] else "missing" for key in expected()}


def register() -> None:
    """Register everything with verl: immediately in registries that exist, in others when their module is imported.

    Safe to call twice.
    """
    if cpu.is_active():
        cpu.install()
    after_import(trainer_log.TRAINER, trainer_log.mend)
    for kind, (module, _) in _REGISTRIES.items():
        # A class that registers itself needs the whole package that contains the registry.
        module = module.removesuffix(".registry")
        if module in sys.modules:
            _register_kind(kind)
        else:
            after_import(module, partial(_register_kind, kind))


def _register_kind(kind: str) -> None:
    try:
        _REGISTER[kind]()
    except Exception:
        # verl continues, as if a plugin failed to load; a recipe's start checks `missing`.
        logger.exception("verl_kernel could not register with verl")


def _register_functions(kind: str, functions: Mapping[str, Callable[..., Any]]) -> None:
    registry = _registry(kind)
    for name, function in functions.items():
        if _is_free(kind, name, _path(function)):
            registry[name] = function


def _register_agent_loop() -> None:
    # Refuse here, before Ray and vLLM start, rather than after the first turn.
    append_messages(importlib.import_module(_REGISTRIES["agent loop"][0]).AgentLoopBase)
    if _is_free("agent loop", AGENT_LOOP, AGENT_LOOP_CLASS):
        _registry("agent loop")[AGENT_LOOP] = {"_target_": AGENT_LOOP_CLASS}


def _register_reward_manager() -> None:
    if _is_free("reward manager", REWARD_MANAGER, REWARD_MANAGER_CLASS):
        # The class registers itself where it is defined: its module may be the one whose import of verl led
        # here.
        importlib.import_module(REWARD_MANAGER_CLASS.rpartition(".")[0])


_REGISTER: dict[str, Callable[[], None]] = {
    "advantage estimator": partial(_register_functions, "advantage estimator", ESTIMATORS),
    "policy loss": partial(_register_functions, "policy loss", LOSSES),
    "reward manager": _register_reward_manager,
    "agent loop": _register_agent_loop,
}
