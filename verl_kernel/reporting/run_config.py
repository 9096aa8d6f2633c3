# SPDX-License-Identifier: Apache-2.0
"""The configuration that Hydra kept in a run's folder, for the facts of a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class RunConfig:
    """The values of a run's configuration; none where the file is missing or damaged, or OmegaConf is not installed.

    A report is made without them: a run can be looked at on a machine that has the gym alone.
    """

    def __init__(self, folder: Path) -> None:
        self._config = _loaded(folder / ".hydra" / "config.yaml")

    def text(self, key: str) -> str | None:
        """Return a value as text; None if it is left out or null, or only the run itself could resolve it."""
        value = self._value(key)
        return None if value is None else str(value)

    def texts(self, key: str) -> list[str]:
        """Return the values of a list, or a single value, as texts."""
        value = self._value(key)
        if value is None:
            return []
        return [value] if isinstance(value, str) else [str(each) for each in value]

    def _value(self, key: str) -> Any:
        if self._config is None:
            return None
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        try:
            return OmegaConf.select(self._config, key)
        except OmegaConfBaseException:
            return None


def _loaded(path: Path) -> Any:
    try:
        from omegaconf import DictConfig, OmegaConf
        from omegaconf.errors import OmegaConfBaseException
        from yaml import YAMLError

        from verl_kernel import run_name  # noqa: F401  configurations ask for it
    except ModuleNotFoundError:
        return None
    try:
        config = OmegaConf.load(path)
    except (OSError, ValueError, OmegaConfBaseException, YAMLError):
        return None
    return config if isinstance(config, DictConfig) else None
