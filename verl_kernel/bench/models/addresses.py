# SPDX-License-Identifier: Apache-2.0
"""Checks the addresses of endpoints before the first request."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from verl_kernel.errors import ConfigError

_HOST = re.compile(r"[\w.-]+|[0-9a-fA-F:.%]+")
_EXAMPLE = "as in http://127.0.0.1:8000/v1"


def refuse_no_address(url: str) -> None:
    """Raise a ConfigError if a text is not the address of an HTTP server."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        raise ConfigError(f"--base-url is {url!r}, without a scheme: begin it with http:// or https://, {_EXAMPLE}")
    if scheme.lower() not in ("http", "https"):
        raise ConfigError(f"--base-url is {url!r}: its scheme must be http or https, {_EXAMPLE}")
    if not (rest.isprintable() and " " not in rest and _has_host(url)):
        raise ConfigError(f"--base-url is {url!r}, which names no host or no port that could be: give both, {_EXAMPLE}")


def _has_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname and _HOST.fullmatch(parts.hostname)) and parts.port != 0
    except ValueError:
        return False
