# SPDX-License-Identifier: Apache-2.0
"""The Hydra callback that runs the checks.

Hydra only warns of an exception in a callback, so a failed check ends the process with SystemExit, whose text is one
sentence naming the key and the remedy.
"""

from __future__ import annotations

import logging
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from verl_kernel.errors import VerlKernelError
from verl_kernel.preflight.checks import CHECKS

logger = logging.getLogger(__name__)


class PreflightCallback(Callback):  # type: ignore[misc]
    """Hydra callback that runs `preflight` before verl's main function."""

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Run all checks.

        Raises:
            SystemExit: one of them failed.
        """
        try:
            preflight(config)
        except VerlKernelError as exc:
            raise SystemExit(f"verl-kernel: {exc}") from None
        except Exception as exc:
            # Hydra would turn it into a warning and go on.
            logger.exception("a check before the start failed by itself")
            raise SystemExit(1) from exc


def preflight(config: DictConfig) -> None:
    """Run all checks on a composed configuration.

    Raises:
        VerlKernelError: the first check that failed.
    """
    for check in CHECKS:
        check(config)
