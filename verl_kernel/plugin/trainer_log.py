# SPDX-License-Identifier: Apache-2.0
"""A logger for verl's trainer of `separate_async`, which cannot start with its own.

Without colocated replicas (`actor_rollout_ref.hybrid_engine: false`) verl 0.9.1 calls `logger.info(..., flush=True)`,
an argument of `print` that `logging` refuses with a TypeError.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import MutableMapping
from typing import Any

TRAINER = "verl.trainer.ppo.v1.trainer_separate_async"


class WithoutFlush(logging.LoggerAdapter[logging.Logger]):
    """A logger adapter that drops the argument `flush`."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Drop the argument; logging flushes anyway."""
        kwargs.pop("flush", None)
        return msg, kwargs


def mend() -> None:
    """Give the trainer's module such a logger; safe to call twice."""
    module: Any = importlib.import_module(TRAINER)
    if not isinstance(module.logger, WithoutFlush):
        module.logger = WithoutFlush(module.logger)
