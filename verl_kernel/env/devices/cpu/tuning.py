# SPDX-License-Identifier: Apache-2.0
"""Autotuning with the simulated clock: every configuration is launched once.

A tried launch is not part of the forward's trace and does not change its tensors. So a program that launches other
work in its place gets it for free but without effect; torch ops of hooks are still charged. On a GPU the tries of the
first call do change the tensors, some hundred times: a kernel that adds to its result is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from triton.runtime.autotuner import Autotuner

from verl_kernel.env.devices.cpu.launch_state import STATE
from verl_kernel.env.machine.machine import MachineModel
from verl_kernel.env.machine.price import time_ms

MOST_CONFIGURATIONS = 8
"""Largest number of configurations tried for a kernel; from a longer list, evenly spaced ones are taken."""
_MACHINE = MachineModel.of("h100")


def simulated_ms(tuner: Any, call: Callable[[], Any], quantiles: Any = None, **options: Any) -> Any:
    """Return the simulated milliseconds of the launches in `call`, repeated for each of `quantiles`.

    Raises:
        RuntimeError: repetitions accumulate, as the tries of the first call do on a GPU.
    """
    with STATE.trying() as events:
        call()
    _refuse_accumulation(tuner)
    milliseconds = time_ms(events, _MACHINE)
    return milliseconds if quantiles is None else [milliseconds] * len(quantiles)


def _refuse_accumulation(tuner: Any) -> None:
    """Refuse a kernel whose tries change a tensor each time, unless it is set back or hooks may see to that."""
    changed, STATE.changed_again = STATE.changed_again, set()
    has_hooks = tuner.user_defined_pre_hook or tuner.user_defined_post_hook
    not_reset = sorted(changed - {*tuner.reset_to_zero, *tuner.restore_value})
    if not_reset and not has_hooks and not any(config.pre_hook for config in tuner.configs):
        raise RuntimeError(
            f"autotuned kernel {tuner.base_fn.__name__} changes {not_reset[0]} each time that it is tried, and on a "
            f"GPU all tries of its first call do: name it in reset_to_zero or restore_value"
        )


def install() -> None:
    """Let autotuners choose by the simulated clock (once per process)."""
    Autotuner.do_bench = property(lambda self: partial(simulated_ms, self))
    Autotuner.prune_configs = _bounded(Autotuner.prune_configs)
    Autotuner.check_disk_cache = _measured_here


def spread(configurations: list[Any]) -> list[Any]:
    """Return at most `MOST_CONFIGURATIONS` evenly spaced configurations, including the first and the last."""
    last, count = len(configurations) - 1, MOST_CONFIGURATIONS
    if last < count:
        return configurations
    return [configurations[number * last // (count - 1)] for number in range(count)]


def _measured_here(self: Any, key: Any, configurations: list[Any], benchmark: Callable[[], None]) -> bool:
    """Time the configurations and ignore Triton's cache files (in place of `Autotuner.check_disk_cache`)."""
    benchmark()
    return False


def _bounded(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def prune_configs(self: Any, *args: Any, **kwargs: Any) -> Any:
        return spread(list(original(self, *args, **kwargs)))

    return prune_configs
