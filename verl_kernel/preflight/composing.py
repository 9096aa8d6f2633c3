# SPDX-License-Identifier: Apache-2.0
"""Composes the configuration as Hydra does for verl's main functions, without importing verl; errors in our words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_kernel import run_name  # noqa: F401  recipes ask for it
from verl_kernel.adaptive import AdaOptions
from verl_kernel.env import GymOptions
from verl_kernel.errors import ConfigError, EnvironmentNotReady, VerlKernelError
from verl_kernel.option_group import is_constant, nearest, option_names
from verl_kernel.reward.options import RolloutOptions
from verl_kernel.reward.profiling import ProfilingReward
from verl_kernel.sampler.options import PRSOptions

_OURS = Path(__file__).parents[1] / "config"
_UNKNOWN = re.compile(r"Could not (?:override|delete from config\.) '(?!hydra\.)([^']+)'")
_SAID = {
    re.compile(
        r".* '([^']+)'\. No match in the defaults list"
    ): "{name} chooses no {key}: add one, as in +{key}=CHOICE",
    re.compile(r"(\S+) appears more than once in the final"): "{name} chooses a {key} already: write {key}=CHOICE",
    re.compile(r".* An item is already at '([^']+)'"): "{name} has the key {key} already: write {key}=VALUE",
}
"""Hydra's errors by the key that they name, in our words."""
_LONG = {"-cn": "--config-name", "-cd": "--config-dir"}
_OPTIONS = {
    "kernelgym": (*option_names(RolloutOptions), *option_names(GymOptions)),
    "kernelgym.reward": option_names(ProfilingReward),
}
"""Keys of our nodes that a recipe need not set."""
_CONSTANTS = {f"{kind.NODE}.{key}": value for kind in (AdaOptions, PRSOptions) for key, value in kind.CONSTANTS.items()}


def compose(name: str, overrides: Sequence[str], folder: Path | None = None) -> DictConfig:
    """Compose a configuration.

    Args:
        name: name of the recipe.
        overrides: Hydra overrides, as a training gets them.
        folder: folder of the user's recipes; verl's and ours are found without it.

    Raises:
        ConfigError: it does not compose; the message names the key and the remedy.
        EnvironmentNotReady: verl is not installed.
    """
    from hydra.errors import HydraException, MissingConfigException, OverrideParseException
    from omegaconf.errors import OmegaConfBaseException

    if folder is not None and not folder.is_dir():
        raise ConfigError(f"--config-dir is {folder}, which is no folder: name the folder of your recipes")
    try:
        return _composed(name, overrides, folder)
    except OverrideParseException as exc:
        raise ConfigError(
            f"{exc.override!r} is no override that can be read: write key=value, with quotes around a value that holds "
            "blanks, commas or brackets"
        ) from exc
    except MissingConfigException as exc:
        raise _missing(str(exc.missing_cfg_file), exc.options, folder) from exc
    except (HydraException, OmegaConfBaseException, ValueError) as exc:
        raise _explained(name, overrides, folder, " ".join(str(exc).split())) from exc


def compose_training(name: str, overrides: Sequence[str], folder: Path | None = None) -> DictConfig:
    """Compose the configuration of a training by reinforcement learning (raises as `compose`, and for any other)."""
    config = compose(name, overrides, folder)
    if "actor_rollout_ref" not in config:
        raise ConfigError(
            f"--config-name is {name}, which has no actor_rollout_ref and so trains no policy on its own samples: name "
            "a recipe for `python -m verl.trainer.main_ppo`, such as kernel_trloo"
        )
    return config


def why_refused(command: Sequence[str]) -> str | None:
    """Return in a sentence why the command of a verl trainer does not compose; None if it does or is another one."""
    words = iter(command)
    if not any(word.startswith("verl.") for word in words):
        return None
    options, overrides = {"--config-name": "ppo_trainer"}, []
    for word in words:
        option, _, value = word.partition("=")
        if option.startswith("-"):
            options[_LONG.get(option, option)] = value or next(words, "")
        else:
            overrides.append(word)
    folder = options.get("--config-dir")
    try:
        compose(options["--config-name"], overrides, None if folder is None else Path(folder))
    except VerlKernelError as exc:
        return str(exc)
    return None


def _composed(name: str, overrides: Sequence[str], folder: Path | None) -> DictConfig:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir

    with initialize_config_dir(str((folder or _verls()).resolve()), version_base=None):
        search = [] if folder is None else [f"hydra.searchpath=[file://{_verls()}]"]
        return hydra_compose(name, overrides=[*overrides, *search])


def _verls() -> Path:
    """Return the folder of verl's configurations; importing verl would take seconds."""
    spec = find_spec("verl")
    if spec is None or not spec.submodule_search_locations:
        raise EnvironmentNotReady("verl is not installed: `make env` in a checkout, elsewhere `pip install verl`")
    return Path(spec.submodule_search_locations[0]) / "trainer" / "config"


def _explained(name: str, overrides: Sequence[str], folder: Path | None, text: str) -> ConfigError:
    """Return the error for a message of Hydra's that is text only."""
    for pattern, sentence in _SAID.items():
        if match := pattern.match(text):
            return ConfigError(sentence.format(name=name, key=match[1]))
    if match := _UNKNOWN.match(text):
        word = next((each for each in overrides if each.lstrip("+~").split("=")[0] == match[1]), match[1])
        remaining = [each for each in overrides if each != word]
        return ConfigError(
            f"{match[1]} is no key of {name}; {remedy(_config(name, remaining, folder), match[1], word)}"
        )
    for word in overrides:
        key, _, value = word.lstrip("+").partition("=")
        choices = sorted(path.stem for root in _roots(folder) for path in (root / key).glob("*.yaml"))
        if choices and value not in choices:
            return _no_choice(key, value, choices)
    return ConfigError(f"{name} does not compose: {text}")


def _config(name: str, overrides: Sequence[str], folder: Path | None) -> DictConfig:
    """Return the recipe with the other overrides, or without them if they do not compose either."""
    try:
        return compose(name, overrides, folder)
    except ConfigError:
        return compose(name, (), folder)


def _missing(file: str, choices: Sequence[str] | None, folder: Path | None) -> ConfigError:
    """Return the error for a recipe that does not exist, or for a choice that its group lacks."""
    group, _, name = file.rpartition("/")
    if choices:
        return _no_choice(group, name, choices)
    if group:
        return ConfigError(f"{file}.yaml, which a recipe names, does not exist: correct that recipe")
    recipes = sorted({path.stem for root in _roots(folder) for path in root.glob("[!_]*.yaml")})
    where = "" if folder else "; name the folder of a recipe of yours with --config-dir"
    return ConfigError(f"--config-name is {name!r}; {_one_of(name, recipes)}{where}")


def _no_choice(group: str, name: str, choices: Sequence[str]) -> ConfigError:
    return ConfigError(f"{group} is {name!r}; {_one_of(name, choices)}")


def _one_of(name: str, choices: Sequence[str]) -> str:
    return f"{nearest(name, choices)}it must be one of {', '.join(choices)}"


def _roots(folder: Path | None) -> list[Path]:
    return [*([] if folder is None else [folder]), _verls(), _OURS]


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
    keys = [*dict.fromkeys((*map(str, _node(config, node)), *_OPTIONS.get(node, ())))]
    inside = f"{node}." if node else ""
    if near := nearest(name, keys):
        return near.replace("mean ", f"mean {inside}").strip()
    elsewhere = [each for each in _keys(config) if each.endswith(f".{name}")]
    if len(elsewhere) == 1:
        return f"did you mean {elsewhere[0]}?"
    is_fixed = node in _OPTIONS or word.startswith("~")
    plus = "" if is_fixed else f"; a key that it lacks is added with a plus, as in +{word}"
    return f"{node or 'it'} holds {', '.join(keys)}{plus}"


def _deepest(config: DictConfig, key: str) -> tuple[str, str]:
    """Return the longest prefix of a key that is a node, and the name that this node lacks."""
    names = key.split(".")
    nodes = (".".join(names[:size]) for size in range(len(names)))
    mappings = [node for node in nodes if isinstance(_at(config, node), DictConfig)]
    return mappings[-1], names[len(mappings) - 1]


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
