# SPDX-License-Identifier: Apache-2.0
"""Composes the configuration as Hydra does for verl's main functions, without importing verl; errors in our words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from verl_kernel.errors import ConfigError, EnvironmentNotReady, VerlKernelError
from verl_kernel.option_group import nearest
from verl_kernel.preflight.unknown_key import remedy

if TYPE_CHECKING:
    from omegaconf import DictConfig

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
        raise _told(name, overrides, folder, " ".join(str(exc).split())) from exc


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


def _told(name: str, overrides: Sequence[str], folder: Path | None, text: str) -> ConfigError:
    """Return the error for a message of Hydra's that is text only."""
    for pattern, sentence in _SAID.items():
        if found := pattern.match(text):
            return ConfigError(sentence.format(name=name, key=found[1]))
    if found := _UNKNOWN.match(text):
        word = next((each for each in overrides if each.lstrip("+~").split("=")[0] == found[1]), found[1])
        others = [each for each in overrides if each != word]
        return ConfigError(f"{found[1]} is no key of {name}; {remedy(_config(name, others, folder), found[1], word)}")
    for word in overrides:
        key, _, value = word.lstrip("+").partition("=")
        known = sorted(path.stem for root in _roots(folder) for path in (root / key).glob("*.yaml"))
        if known and value not in known:
            return _no_choice(key, value, known)
    return ConfigError(f"{name} does not compose: {text}")


def _config(name: str, overrides: Sequence[str], folder: Path | None) -> DictConfig:
    """Return the recipe with the other overrides, or without them if they do not compose either."""
    try:
        return compose(name, overrides, folder)
    except ConfigError:
        return compose(name, (), folder)


def _missing(file: str, known: Sequence[str] | None, folder: Path | None) -> ConfigError:
    """Return the error for a recipe that does not exist, or for a choice that its group lacks."""
    group, _, name = file.rpartition("/")
    if known:
        return _no_choice(group, name, known)
    if group:
        return ConfigError(f"{file}.yaml, which a recipe names, does not exist: correct that recipe")
    recipes = sorted({path.stem for root in _roots(folder) for path in root.glob("[!_]*.yaml")})
    where = "" if folder else "; name the folder of a recipe of yours with --config-dir"
    return ConfigError(f"--config-name is {name!r}; {_one_of(name, recipes)}{where}")


def _no_choice(group: str, name: str, known: Sequence[str]) -> ConfigError:
    return ConfigError(f"{group} is {name!r}; {_one_of(name, known)}")


def _one_of(name: str, known: Sequence[str]) -> str:
    return f"{nearest(name, known)}it must be one of {', '.join(known)}"


def _roots(folder: Path | None) -> list[Path]:
    return [*([] if folder is None else [folder]), _verls(), _OURS]
