# SPDX-License-Identifier: Apache-2.0
"""What verl's registries hold of ours, put there as soon as verl has each of them.

A name that verl already holds is never overwritten. `missing()` is what `doctor` and `preflight` ask.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from verl_kernel import cpu
from verl_kernel.advantage import ESTIMATORS
from verl_kernel.errors import RegistrationError
from verl_kernel.loss import LOSSES
from verl_kernel.plugin import trainer_log
from verl_kernel.plugin.after_import import after_import

logger = logging.getLogger(__name__)

REWARD_MANAGER = "kernelgym"
REWARD_MANAGER_CLASS = "verl_kernel.reward.manager.KernelGymRewardManager"
AGENT_LOOP = "kernel_agent"
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
    """Dotted name behind a registry entry: a function, a class, or an agent loop's `_target_` mapping."""
    if isinstance(entry, Mapping):
        return str(entry["_target_"])
    return f"{getattr(entry, '__module__', '?')}.{getattr(entry, '__qualname__', entry)}"


def _claim(kind: str, name: str, path: str) -> dict[str, Any]:
    registry = _registry(kind)
    if name in registry and _path(registry[name]) != path:
        raise RegistrationError(
            f"verl already has the {kind} {name!r}, registered by {_path(registry[name])}; verl_kernel would register "
            f"{path} under it: uninstall one, or leave one out of VERL_USE_EXTERNAL_PLUGINS / VERL_USE_EXTERNAL_MODULES"
        )
    return registry


def expected() -> dict[tuple[str, str], str]:
    """The dotted name of what we register under each (kind, name)."""
    names = {("advantage estimator", name): _path(function) for name, function in ESTIMATORS.items()}
    names |= {("policy loss", name): _path(function) for name, function in LOSSES.items()}
    names["reward manager", REWARD_MANAGER] = REWARD_MANAGER_CLASS
    names["agent loop", AGENT_LOOP] = AGENT_LOOP_CLASS
    return names


def missing() -> dict[tuple[str, str], str | None]:
    """Those of our names that verl's registries do not hold for us, with the dotted name of their holder."""
    found: dict[tuple[str, str], str | None] = {}
    for (kind, name), path in expected().items():
        entry = _registry(kind).get(name)
        holder = None if entry is None else _path(entry)
        if holder != path:
            found[kind, name] = holder
    return found


def register() -> None:
    """Register everything with verl: at once in registries that are there, in others when their module is imported.

    Safe to call twice.

    Raises:
        RegistrationError: verl already holds one of our names for somebody else.
    """
    if cpu.is_active():
        cpu.install()
    after_import(trainer_log.TRAINER, trainer_log.mend)
    for kind, (module, _) in _REGISTRIES.items():
        # A class that registers itself needs the whole package around its registry.
        module = module.removesuffix(".registry")
        if module in sys.modules:
            _REGISTER[kind]()
        else:
            after_import(module, partial(_register_later, kind))


def _register_later(kind: str) -> None:
    try:
        _REGISTER[kind]()
    except Exception:
        # As where a plugin fails to load, verl goes on; a recipe's start asks for what is `missing`.
        logger.exception("verl_kernel could not register with verl")


def _register_estimators() -> None:
    for name, function in ESTIMATORS.items():
        _claim("advantage estimator", name, _path(function))[name] = function


def _register_losses() -> None:
    for name, loss in LOSSES.items():
        _claim("policy loss", name, _path(loss))[name] = loss


def _register_agent_loop() -> None:
    _claim("agent loop", AGENT_LOOP, AGENT_LOOP_CLASS)[AGENT_LOOP] = {"_target_": AGENT_LOOP_CLASS}


def _register_reward_manager() -> None:
    _claim("reward manager", REWARD_MANAGER, REWARD_MANAGER_CLASS)
    # The class registers itself where it is defined: its module may be the one whose import of verl brought us here.
    importlib.import_module(REWARD_MANAGER_CLASS.rpartition(".")[0])


_REGISTER = {
    "advantage estimator": _register_estimators,
    "policy loss": _register_losses,
    "reward manager": _register_reward_manager,
    "agent loop": _register_agent_loop,
}
