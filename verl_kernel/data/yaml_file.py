# SPDX-License-Identifier: Apache-2.0
"""Reads YAML files that users write, as mappings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError, YAMLError

from verl_kernel.errors import ConfigError


def read_yaml(path: Path, wanted: str) -> dict[str, Any]:
    """Return the keys and values of a YAML file.

    Args:
        path: the file.
        wanted: what to name or to write instead; ends the error's sentence.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or holds no keys; the message says where and what is wanted.
    """
    try:
        node = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist: {wanted}") from None
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read ({exc.strerror or exc}): {wanted}") from exc
    except (OmegaConfBaseException, ValueError, YAMLError) as exc:
        raise ConfigError(f"{path} is no valid YAML ({_reason(exc)}): {wanted}") from exc
    if not isinstance(node, dict):
        raise ConfigError(f"{path} holds no keys: {wanted}")
    return {str(key): value for key, value in node.items()}


def _reason(exc: Exception) -> str:
    """Return what is wrong and in which line, without the lines that YAML quotes from the file."""
    if isinstance(exc, MarkedYAMLError) and exc.problem_mark is not None:
        return f"line {exc.problem_mark.line + 1}: {exc.problem}"
    return str(exc).strip().partition("\n")[0][:200]
