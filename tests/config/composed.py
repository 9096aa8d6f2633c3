# SPDX-License-Identifier: Apache-2.0
"""Configurations of recipes: what several tests compose from verl's 65 files is composed once."""

import functools
import pickle
from pathlib import Path

from omegaconf import DictConfig

import verl_kernel.config
from verl_kernel.preflight.composing import compose

CONFIG = Path(verl_kernel.config.__path__[0])
GROUPS = {path.name for path in CONFIG.iterdir() if path.is_dir()}


def composed(recipe: str, *overrides: str) -> DictConfig:
    """A configuration of its own for the caller.

    Choices such as `method=topr` are composed with the files; values are set in the result by the function of Hydra's
    that sets them there.
    """
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.core.override_parser.overrides_parser import OverridesParser

    values = [word for word in overrides if word.lstrip("+").partition("=")[0] not in GROUPS]
    config: DictConfig = pickle.loads(_kept(recipe, *(word for word in overrides if word not in values)))
    ConfigLoaderImpl._apply_overrides_to_config(OverridesParser.create().parse_overrides(values), config)
    return config


@functools.cache
def _kept(recipe: str, *choices: str) -> bytes:
    return pickle.dumps(compose(recipe, choices))
