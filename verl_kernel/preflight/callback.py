# SPDX-License-Identifier: Apache-2.0
"""The Hydra callback that runs the checks.

Hydra only warns of an exception in a callback, so a failed check ends the process with SystemExit, whose text is one
sentence naming the key and the remedy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from verl_kernel.errors import VerlKernelError
from verl_kernel.preflight.attention import check_attention
from verl_kernel.preflight.checks import CHECKS
from verl_kernel.preflight.hardware import Machine, this_machine
from verl_kernel.preflight.placement import check_gpus, check_hub, check_judges, check_machine, check_platform

logger = logging.getLogger(__name__)


class PreflightCallback(Callback):  # type: ignore[misc]
    """Hydra callback that runs `preflight` before verl's main function."""

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Run all checks.

        Raises:
            SystemExit: one of them failed.
        """
        try:
            for note in preflight(config):
                logger.info("not checked before the start: %s", note)
        except VerlKernelError as exc:
            raise SystemExit(f"verl-kernel: {exc}") from None
        except Exception as exc:
            # Hydra would turn the exception into a warning and continue.
            logger.exception("a check before the start failed by itself")
            raise SystemExit(1) from exc


def preflight(config: DictConfig, machine: Machine | None = None) -> tuple[str, ...]:
    """Run all checks on a composed configuration.

    Args:
        config: configuration of a training.
        machine: machine of the training; this one if None.

    Returns:
        What could not be checked from here, and why.

    Raises:
        VerlKernelError: the first check that failed.
    """
    machine = machine or this_machine(config)
    check_platform(config, machine)
    for check in CHECKS:
        check(config)
    return tuple(note for placed in ON_A_MACHINE for note in placed(config, machine))


ON_A_MACHINE: tuple[Callable[[DictConfig, Machine], Iterator[str]], ...] = (
    check_judges,
    check_gpus,
    check_attention,
    check_machine,
    check_hub,
)
"""Run after `CHECKS`: problems of a machine take the longest to fix."""
