# SPDX-License-Identifier: Apache-2.0
"""Checks names that verl looks up only when it needs them: in its registries, in modules, in files.

The registries themselves are read, so that names of verl, of other plugins and of this package are all known.
"""

from __future__ import annotations

import ast
import functools
import importlib
import logging
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from verl_kernel.errors import ConfigError, RegistrationError
from verl_kernel.option_group import in_words, nearest
from verl_kernel.preflight.trainer_mode import NEED_AN_ACCELERATOR
from verl_kernel.preflight.unread_keys import folder_of
from verl_kernel.verl_keys import find, read

logger = logging.getLogger(__name__)

PKG = "pkg://"
_ROLLOUT = "actor_rollout_ref.rollout"
_ACTOR = "actor_rollout_ref.actor"
_MANAGER = "reward.reward_manager"
LOOP = f"{_ROLLOUT}.agent.default_agent_loop"
LOGGER = "trainer.logger"
LOOP_FILE = f"{_ROLLOUT}.agent.agent_loop_config_path"
_BACKEND = f"{_ROLLOUT}.checkpoint_engine.backend"
_BACKEND_MODULE = f"{_ROLLOUT}.checkpoint_engine.custom_backend_module"

NAMES = {
    "advantage estimator": "algorithm.adv_estimator",
    "policy loss": f"{_ACTOR}.policy_loss.loss_mode",
    "reward manager": f"{_MANAGER}.name",
    "agent loop": LOOP,
}
"""Keys that name entries of the registries to which we add."""

REGISTRIES = {
    "trainer.v1.trainer_mode": ("verl.trainer.ppo.v1.trainer_base", "TRAINER_REGISTRY"),
    f"{_ROLLOUT}.name": ("verl.workers.rollout.replica", "RolloutReplicaRegistry._registry"),
    _BACKEND: ("verl.checkpoint_engine", "CheckpointEngineRegistry._registry"),
}
"""verl's other registries, by the key that names one of their entries."""

OBJECTS = (
    ("trainer.v1.sampler.custom_sampler.path", "trainer.v1.sampler.custom_sampler.name"),
    ("reward.custom_reward_function.path", "reward.custom_reward_function.name"),
    ("data.custom_cls.path", "data.custom_cls.name"),
)
"""Keys of a file, or of a module as `pkg://...`, and keys of the name that verl takes from it."""

DOTTED = (
    (f"{_ACTOR}.optim.optimizer_impl", f"{_ACTOR}.optim.optimizer"),
    (f"{_ROLLOUT}.agent.agent_loop_manager_class", None),
    (f"{_ACTOR}.policy_loss._target_", None),
    ("algorithm._target_", None),
)
"""Keys of a module and of the name that verl takes from it; if one key holds both, the name is its last part."""


def check_registries(config: DictConfig) -> None:
    """Check that verl's registries hold our names that the configuration uses; log all others that are missing."""
    from verl_kernel import plugin

    for (kind, name), holder in plugin.missing().items():
        state = f"held by {holder}" if holder else "not registered"
        if read(config, NAMES[kind]) != name:
            logger.warning("%s %r is %s; this run does not use it", kind, name, state)
            continue
        remedy = (
            "choose another, or leave the other package out of VERL_USE_EXTERNAL_PLUGINS or VERL_USE_EXTERNAL_MODULES"
            if holder
            else "allow verl_kernel in VERL_USE_EXTERNAL_PLUGINS, and look for the error that the plugin logged when "
            "verl was imported"
        )
        raise RegistrationError(f"{NAMES[kind]} is {name}, a name of verl_kernel that is {state}: {remedy}")


def check_names(config: DictConfig) -> None:
    """Check that verl will find every name.

    Raises:
        ConfigError: a name is unknown; the message names its key and the name that may be meant.
    """
    for key, registered in _registered(config):
        name = read(config, key)
        if name not in registered:
            raise unknown(key, name, registered)
    for path, name in _objects(config):
        if target := find(config, path):
            _check_object(path, target, name, find(config, name))
    for path, name in DOTTED:
        if target := find(config, path):
            module, _, last = (target, "", find(config, name)) if name else target.rpartition(".")
            _check_object(path, f"{PKG}{module}", name or path, last)


def check_backends(config: DictConfig) -> None:
    """Check that verl knows every logger.

    Raises:
        ConfigError: it does not; a run would notice after the model and vLLM have started.
    """
    loggers, backends = read(config, LOGGER), _backends()
    for name in [loggers] if isinstance(loggers, str) else loggers:
        if name not in backends:
            raise unknown(LOGGER, name, backends)


def agent_loops(config: DictConfig) -> set[str]:
    """Return the agent loops that rows may name: those that are registered, and those of the run's own file.

    Raises:
        ConfigError: the file cannot be read, or is not a list of loops with names.
    """
    from verl_kernel import plugin

    return {*plugin.registered("agent loop"), *_loops_of_file(read(config, LOOP_FILE))}


def unknown(key: str, name: object, names: Iterable[str]) -> ConfigError:
    """Return the error for an unknown name."""
    names = sorted(str(getattr(each, "value", each)) for each in names)
    return ConfigError(f"{key} is {in_words(name)}; {nearest(name, names)}it must be one of {', '.join(names)}")


def _backends() -> list[str]:
    """Return what verl can log to, by the text of its module: importing verl takes seconds."""
    tree = ast.parse((folder_of("verl") / "utils" / "tracking.py").read_text())
    assigned = (node for node in ast.walk(tree) if isinstance(node, ast.Assign))
    (value,) = (node.value for node in assigned if ast.unparse(node.targets[0]) == "supported_backend")
    return [*ast.literal_eval(value), "tracking"]  # its old name of wandb


def _registered(config: DictConfig) -> Iterator[tuple[str, Iterable[str]]]:
    from verl_kernel import plugin

    for kind, key in NAMES.items():
        if kind == "agent loop":
            yield key, agent_loops(config)
        elif kind != "reward manager" or read(config, f"{_MANAGER}.source") != "importlib":
            yield key, plugin.registered(kind)
    for key, (module, path) in REGISTRIES.items():
        if key == _BACKEND and (own := find(config, _BACKEND_MODULE)):
            _load(_BACKEND_MODULE, f"{PKG}{own}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # verl warns about every engine that is not installed
            entries = functools.reduce(getattr, path.split("."), importlib.import_module(module))
        yield key, {*entries, *(NEED_AN_ACCELERATOR if key == _BACKEND else ())}


def _objects(config: DictConfig) -> Iterator[tuple[str, str]]:
    yield from OBJECTS
    if read(config, f"{_MANAGER}.source") == "importlib":
        if read(config, f"{_MANAGER}.module.path") is None:
            raise ConfigError(
                f"{_MANAGER}.source is importlib and {_MANAGER}.module.path is null: give the file or module of the "
                f"reward manager, or set {_MANAGER}.source to register"
            )
        yield f"{_MANAGER}.module.path", f"{_MANAGER}.name"


def _check_object(key: str, target: str, name_key: str, name: str | None) -> None:
    module = _load(key, target)
    if not name:
        raise ConfigError(f"{name_key} is {in_words(name)} and {key} is {target}: give the name to take from there")
    if not hasattr(module, name):
        public = [each for each in vars(module) if not each.startswith("_")]
        raise ConfigError(
            f"{name_key} names {name}, which {target.removeprefix(PKG)} does not define; {nearest(name, public)}give a "
            "name that it defines"
        )


def _load(key: str, target: str) -> Any:
    from verl.utils.import_utils import load_module

    try:
        return load_module(target)
    except Exception as exc:  # a module of the user's may fail in any way
        raise ConfigError(
            f"{key} names {target.removeprefix(PKG)}, which cannot be loaded ({_reason(exc.__cause__ or exc)}): give a "
            "file or module that is there and can be imported"
        ) from exc


def _reason(exc: BaseException) -> str:
    return f"{type(exc).__name__}: {str(exc).partition(chr(10))[0]}".rstrip(".: ")


def _loops_of_file(path: str | None) -> set[str]:
    if path is None:
        return set()
    from verl.experimental.agent_loop.utils import resolve_config_path

    try:
        return {str(entry["name"]) for entry in OmegaConf.load(resolve_config_path(path))}
    except (OSError, ValueError, TypeError, KeyError, YAMLError, OmegaConfBaseException) as exc:
        raise ConfigError(
            f"{LOOP_FILE} names {path}, which is no list of agent loops, each with name and _target_ ({_reason(exc)}): "
            "correct the file, or set the key to null"
        ) from None
