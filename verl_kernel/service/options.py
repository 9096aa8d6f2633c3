# SPDX-License-Identifier: Apache-2.0
"""The options of the service itself; how it judges are the options of the gym."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Interval

from verl_kernel.errors import ConfigError
from verl_kernel.option_group import OptionGroup


@dataclass(frozen=True)
class ServiceOptions(OptionGroup):
    """Where a service listens, what it keeps, and how much it takes on.

    Raises:
        ConfigError: a value is out of its range, or others could use the service without a key.
    """

    NODE = "serve"

    host: str = "127.0.0.1"
    """Address to listen on; any other than 127.0.0.1 or localhost needs `keys`."""
    port: Annotated[int, Interval(ge=0, le=65535)] = 8008
    """Port to listen on; 0 takes a free one."""
    keys: str | None = None
    """File of API keys, a namespace and a key in each line; null asks for no key."""
    state: str = "verl_kernel_service"
    """Folder in which accepted work and its results are recorded."""
    most_waiting: Annotated[int, Interval(ge=1)] = 1024
    """Evaluations of one namespace that may be unfinished; further ones are refused with the status 429."""
    request_mb: Annotated[float, Interval(gt=0)] = 8.0
    """Largest body of a request, in megabytes."""
    request_s: Annotated[float, Interval(gt=0)] = 30.0
    """Seconds in which a client must have sent the head of a request, and then its body."""
    keep_hours: Annotated[float, Interval(gt=0)] = 24.0
    """Hours for which results are kept."""
    grace_s: Annotated[float, Interval(ge=0)] = 30.0
    """Seconds that unfinished evaluations have at the end; the others are judged by the next service on this folder."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keys is None and self.host not in ("127.0.0.1", "localhost"):
            raise ConfigError(
                f"serve.host is {self.host!r}, where others could have programs run without a key: name a file of keys "
                "with serve.keys, or listen on 127.0.0.1"
            )
