# SPDX-License-Identifier: Apache-2.0
"""Autotuning: every configuration is launched once and timed by the simulated clock.

A launch that is being tried is no part of the forward's trace and leaves nothing behind in its tensors. So whatever
else is launched in its place is free but useless; torch ops of hooks stay charged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from triton.runtime.autotuner import Autotuner

from verl_kernel.env.devices.cpu.state import STATE
from verl_kernel.env.machine.machine import Machine
from verl_kernel.env.machine.price import time_ms

MOST_CONFIGURATIONS = 8
"""Configurations of a kernel that are compiled and tried; of more, some evenly from the whole list."""
_MACHINE = Machine.of("h100")


def simulated_ms(call: Callable[[], Any], quantiles: Any = None, **options: Any) -> Any:
    """What the launches in `call` take; as many equal times as `quantiles` asks for."""
    with STATE.trying() as events:
        call()
    milliseconds = time_ms(events, _MACHINE)
    return milliseconds if quantiles is None else [milliseconds] * len(quantiles)


def install() -> None:
    """Let autotuners choose by the simulated clock (once per process)."""
    Autotuner.do_bench = property(lambda self: simulated_ms)
    Autotuner.prune_configs = _bounded(Autotuner.prune_configs)
    Autotuner.check_disk_cache = _measured_here


def spread(configurations: list[Any]) -> list[Any]:
    """The first, the last and some between them, each as far from the next."""
    last, most = len(configurations) - 1, MOST_CONFIGURATIONS
    if last < most:
        return configurations
    return [configurations[number * last // (most - 1)] for number in range(most)]


def _measured_here(self: Any, key: Any, configurations: list[Any], benchmark: Callable[[], None]) -> bool:
    """Time the configurations, whatever a file of Triton's cache says (in place of `Autotuner.check_disk_cache`)."""
    benchmark()
    return False


def _bounded(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def prune_configs(self: Any, *args: Any, **kwargs: Any) -> Any:
        return spread(list(original(self, *args, **kwargs)))

    return prune_configs
